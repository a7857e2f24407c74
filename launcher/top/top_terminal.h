// SPDX-License-Identifier: Apache-2.0
// The terminal that `ddpctl top` is shown on, by ncurses. One per process. While it exists, the
// terminal is this process's; it is as before when it is destroyed, and when an exception ends the
// process. The caller handles signals: they must be blocked in all threads.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/top/top_view.h"

namespace ddprun {

class TopTerminal {
 public:
  // On stdin and stdout. UNIMPLEMENTED: this terminal cannot show a screen, and why.
  static absl::StatusOr<std::unique_ptr<TopTerminal>> Open();
  ~TopTerminal();
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  ScreenSize size() const;
  bool utf8() const { return utf8_; }
  void Draw(const std::vector<TopLine>& lines);

  // What was typed since; never waits. Call it when stdin is readable.
  std::vector<TopKey> TakeKeys();

  // After SIGWINCH.
  void Resize();
  // Stops the process as Ctrl-Z does, and returns when it continues.
  void Suspend();

 private:
  TopTerminal();

  bool utf8_ = false;
  bool colors_ = false;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// How a detached run tells its recorder what only it knows. Never waits; does nothing in a run that
// is not detached.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "launcher/runs/output_frames.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/observe/run_event.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

class RunReport {
 public:
  RunReport() = default;
  // The writing end of a pipe.
  explicit RunReport(OwnedFd pipe);

  bool detached() const { return pipe_.valid(); }
  // Where commands of this user can ask the rendezvous service: "HOST:PORT" or "unix:PATH".
  void Service(const std::string& target) { Send(FrameKind::kService, target); }
  // The first round has begun; later ones change nothing.
  void Begun();
  // Threadsafe.
  void Event(const RunEvent& event) const;
  // `nodes`: with those of the run, if they have room.
  void Sample(const RunStatus& run, bool nodes) const;
  // Lines of step_lines.h. False: one of them is lost. By one thread at a time.
  bool Steps(absl::string_view lines) const;
  // As people see it, and as programs do (VERDICT.md).
  void Verdict(const std::string& text, const std::string& json) const;

 private:
  bool Send(FrameKind kind, absl::string_view text) const;

  OwnedFd pipe_;
  bool begun_ = false;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Makes the loop watch the console's reader exactly while output waits for it.
#pragma once

#include "launcher/base/poller.h"
#include "launcher/output/console.h"

namespace ddprun {

class ConsoleWatch {
 public:
  // Before each wait of the loop.
  void Update(const Console& console, Poller& poller) {
    UpdateOne(console.PendingFd(OutputStream::kOut), Source::kConsoleOut, out_, poller);
    UpdateOne(console.PendingFd(OutputStream::kErr), Source::kConsoleErr, err_, poller);
  }

 private:
  static void UpdateOne(int pending, Source source, int& watched, Poller& poller) {
    if (pending == watched) return;
    if (watched >= 0) poller.Remove(watched);
    // One that cannot be watched is tried again before the next wait.
    watched = pending >= 0 && poller.Add(pending, {source}, EPOLLOUT) ? pending : -1;
  }

  int out_ = -1;  // -1: nothing waits
  int err_ = -1;
};

}  // namespace ddprun

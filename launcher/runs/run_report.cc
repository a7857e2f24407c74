// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <csignal>

#include "proto/output_file.h"
#include "proto/text.h"

namespace ddprun {

RunReport::RunReport(OwnedFd pipe) : pipe_(std::move(pipe)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

void RunReport::Begun() {
  if (!std::exchange(begun_, true)) Send(FrameKind::kBegun, "");
}

// A frame of PIPE_BUF bytes is written whole or not at all.
void RunReport::Send(FrameKind kind, absl::string_view text) {
  if (!pipe_.valid()) return;
  const std::string frame =
      EncodeFrame(kind, CutText(std::string(text), PIPE_BUF - kFrameHeaderBytes));
  const HeldBackSignal no_reader(SIGPIPE);
  [[maybe_unused]] const ssize_t count = write(pipe_.get(), frame.data(), frame.size());
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// How a detached run tells its recorder what only it knows. Never waits; does nothing in a run that
// is not detached.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "launcher/runs/output_frames.h"
#include "rendezvous/base/owned_fd.h"

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
  void Verdict(const std::string& text) { Send(FrameKind::kVerdict, text); }

 private:
  void Send(FrameKind kind, absl::string_view text);

  OwnedFd pipe_;
  bool begun_ = false;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/head_stdin.h"

#include <cerrno>
#include <utility>

#include "launcher/base/limits.h"

namespace ddprun {

std::optional<HeadStdin::Answer> HeadStdin::Want(Poller& poller, int transport, int node) {
  wanted_ = Answer{.transport = transport, .input = {.node = node}};
  if (!ended_ && (watched_ || poller.Add(fd_, {Source::kStdin}))) {
    watched_ = true;
    return std::nullopt;
  }
  return Read();
}

std::optional<HeadStdin::Answer> HeadStdin::OnReady(Poller& poller) {
  if (std::exchange(watched_, false)) poller.Remove(fd_);
  return Read();
}

std::optional<HeadStdin::Answer> HeadStdin::Read() {
  if (!wanted_.has_value()) return std::nullopt;
  Answer answer = *std::exchange(wanted_, std::nullopt);
  std::string& bytes = answer.input.bytes;
  bytes.resize(kHeadStdinReadBytes);
  ssize_t count = 0;
  if (!ended_) {
    do {
      count = read(fd_, bytes.data(), bytes.size());
    } while (count < 0 && errno == EINTR);
  }
  bytes.resize(static_cast<std::size_t>(count > 0 ? count : 0));
  ended_ = answer.input.end = bytes.empty();
  return answer;
}

}  // namespace ddprun

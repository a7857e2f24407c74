// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/control_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/options/run_flags.h"
#include "proto/version.h"
#include "rendezvous/base/env_file.h"
#include "rendezvous/security/token.h"

namespace ddprun {
namespace {

// SSH_CONNECTION is "client port server port".
Hello MakeHello() {
  Hello hello{.protocol = kProtocolVersion,
              .version = kSoftwareVersion,
              .head_address = {},
              .own_address = {}};
  const std::vector<std::string> fields =
      absl::StrSplit(ReadVariable("SSH_CONNECTION").value_or(""), ' ');
  if (fields.size() == 4) {
    hello.head_address = fields[0];
    hello.own_address = fields[2];
  }
  return hello;
}

bool Send(const NodeMessage& message) {
  return std::printf("%s\n", ToLine(message).c_str()) > 0 && std::fflush(stdout) == 0;
}

// With srun all nodes receive the same bytes; SLURM_PROCID is the node's number.
absl::StatusOr<int> OwnNumber(const Setup& setup) {
  if (setup.node.has_value()) return *setup.node;
  int number = -1;
  if (!absl::SimpleAtoi(ReadVariable("SLURM_PROCID").value_or(""), &number) || number < 0) {
    return absl::InvalidArgumentError(
        "srun has not said which node this is (SLURM_PROCID); use -H instead of --srun");
  }
  return number;
}

// Removes this machine's PET_ variables, so that flags are equal on all nodes.
void ForgetFlagVariables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (absl::StartsWith(*entry, "PET_"))
      names.emplace_back(*entry, static_cast<std::size_t>(std::strcspn(*entry, "=")));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

Orders MakeOrders(Setup& setup, const Go& go, int number) {
  Orders orders;
  orders.arguments = go.flags;
  if (go.node_rank.has_value()) {
    orders.arguments.push_back("--node-rank"_flag.With(*go.node_rank));
  } else if (!setup.node.has_value()) {
    orders.arguments.push_back("--node-rank"_flag.With(number));
  }
  orders.arguments.insert(orders.arguments.end(), setup.arguments.begin(), setup.arguments.end());
  orders.token = std::exchange(setup.token, {});
  if (static_cast<std::size_t>(number) < setup.names.size())
    orders.host = WithoutUser(setup.names[static_cast<std::size_t>(number)]);
  orders.folder = setup.folder;
  orders.environment = setup.environment;
  orders.serve = go.serve;
  return orders;
}

}  // namespace

ControlPipe ControlPipe::TakeStdin() {
  ControlPipe control_pipe;
  control_pipe.fd_ = OwnedFd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  const OwnedFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  return control_pipe;
}

bool ControlPipe::ReadMore() {
  char bytes[16384];
  while (true) {
    const ssize_t count = read(fd_.get(), bytes, sizeof(bytes));
    if (count > 0) {
      const auto size = static_cast<std::size_t>(count);
      std::string all;  // a string that reallocates would leave copies of the secret
      all.reserve(buffer_.size() - taken_ + size);
      all.append(buffer_, taken_).append(bytes, size);
      Wipe(buffer_);
      buffer_ = std::move(all);
      taken_ = 0;
      explicit_bzero(bytes, sizeof(bytes));
      return true;
    }
    if (count < 0 && errno == EINTR) continue;
    return false;
  }
}

bool ControlPipe::TakeLine(std::string& line) {
  const std::size_t end = buffer_.find('\n', taken_);
  if (end == std::string::npos) return false;
  line.assign(buffer_, taken_, end - taken_);
  explicit_bzero(buffer_.data() + taken_, end - taken_);  // may be the secret
  taken_ = end + 1;
  return true;
}

absl::StatusOr<Orders> ControlPipe::AwaitOrders() {
  if (!Send(MakeHello())) return absl::CancelledError("");
  SetupReader reader;
  std::size_t bytes = 0;
  while (true) {
    std::string line;
    while (TakeLine(line)) {
      const absl::Status status = reader.TakeLine(line);
      bytes += line.size();
      explicit_bzero(line.data(), line.size());
      if (!status.ok()) return status;
      if (!reader.go().has_value()) continue;
      const absl::StatusOr<int> number = OwnNumber(reader.setup());
      if (!number.ok()) return number.status();
      number_ = *number;
      const Go& go = *reader.go();
      if (go.node < 0 || go.node == *number) return MakeOrders(reader.setup(), go, *number);
    }
    if (bytes + buffer_.size() - taken_ > kSetupBytesMax) {
      return absl::InvalidArgumentError(
          "the environment that is to be taken over is too large; export less");
    }
    if (!ReadMore()) return absl::CancelledError("");
  }
}

std::vector<PassSignal> ControlPipe::TakeSignals(bool readable, bool& ended) {
  ended = readable && !ReadMore();
  std::vector<PassSignal> signals;
  std::string line;
  while (TakeLine(line)) {
    // With srun it also receives messages for other nodes.
    if (const std::optional<PassSignal> signal = ParseSignal(line)) signals.push_back(*signal);
    std::optional<PassStdin> input = ParseStdin(line);
    if (input.has_value() && input->node == number_) input_.push_back(*std::move(input));
  }
  return signals;
}

absl::Status FollowOrders(const Orders& orders) {
  ForgetFlagVariables();
  for (const std::string& entry : orders.environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  if (orders.folder.empty() || chdir(orders.folder.c_str()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the working folder ", orders.folder, " cannot be entered on ", orders.host,
                   ": ", std::strerror(errno), "; make it there, or name another one with --wdir"));
}

}  // namespace ddprun

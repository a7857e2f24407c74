// SPDX-License-Identifier: Apache-2.0
// NCCL's RAS service (NCCL 2.24 and newer): a thread in each process of a job, which knows of the
// whole job which ranks do not answer and which have called other collectives than their peers. It
// answers in text at a local port.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct RasAddress {
  std::string host;
  std::string port;
  bool operator==(const RasAddress&) const = default;
};

// By a process's variables, NAME=VALUE with a zero byte after each. Absent: it has no service.
// Pure.
std::optional<RasAddress> RasAddressOf(const std::string& variables);

// Whether a thread of the process is the service's. Without one there is nothing to connect to.
bool RunsRas(pid_t pid);

// The state of the job, in lines, as far as it comes within the limit. Empty: nothing listens
// there, or not that service.
std::vector<std::string> AskRas(const RasAddress& address, std::chrono::milliseconds limit);

}  // namespace ddprun

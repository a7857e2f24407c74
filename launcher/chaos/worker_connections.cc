// SPDX-License-Identifier: Apache-2.0
#include "launcher/chaos/worker_connections.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/errno_text.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace ddprun {
namespace {

std::vector<int> SocketNumbers(pid_t pid) {
  std::vector<int> numbers;
  std::error_code error;
  std::filesystem::directory_iterator it(absl::StrCat("/proc/", pid, "/fd"), error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(it->path(), gone).string();
    if (gone || !absl::StartsWith(link, "socket:")) continue;
    const std::string name = it->path().filename().string();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number >= 0) numbers.push_back(number);
    if (numbers.size() >= kChaosSocketsMax) break;
  }
  return numbers;
}

bool IsTcpConnection(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) {
    return false;
  }
  sockaddr_storage peer{};
  size = sizeof peer;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

absl::StatusOr<std::vector<OwnedFd>> ConnectionsOf(pid_t pid, int pidfd) {
  std::vector<OwnedFd> connections;
  for (const int number : SocketNumbers(pid)) {
    OwnedFd fd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, number, 0)));
    if (!fd.valid() && (errno == EPERM || errno == ENOSYS)) {
      return absl::PermissionDeniedError(
          absl::StrCat("not possible here: the agent may not take a descriptor of its worker "
                       "(pidfd_getfd: ",
                       ErrnoText(errno), "); leave this kind of fault out"));
    }
    if (fd.valid() && IsTcpConnection(fd.get())) connections.push_back(std::move(fd));
  }
  if (connections.empty()) {
    return absl::FailedPreconditionError(
        "the worker has no TCP connection now; ranks of one host may communicate by shared memory");
  }
  return connections;
}

}  // namespace ddprun

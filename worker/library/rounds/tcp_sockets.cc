// SPDX-License-Identifier: Apache-2.0
#include "worker/library/rounds/tcp_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

std::optional<int> OptionOf(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(fd, SOL_SOCKET, option, &value, &size) != 0) return std::nullopt;
  return value;
}

// A listening socket is not among them: Gloo's would be accepted from without end.
bool IsTcpConnection(int fd) {
  const auto domain = OptionOf(fd, SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) && OptionOf(fd, SO_TYPE) == SOCK_STREAM &&
         OptionOf(fd, SO_ACCEPTCONN) == 0;
}

// Calls `visit` with a descriptor of its own for each connection: the number that was listed may be
// closed by another thread, and be another file's, at any moment. Where none is left it is that
// number: then hardly another file takes it. The list stays open for the same reason.
void ForEachTcpConnection(const std::function<void(int fd, ino_t inode)>& visit) {
  static std::mutex mutex;
  static DIR* folder = nullptr;
  const std::lock_guard lock(mutex);
  if (folder == nullptr) folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  rewinddir(folder);
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const int listed = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (end == entry->d_name || *end != '\0' || !IsTcpConnection(listed)) continue;
    const OwnedFd own(fcntl(listed, F_DUPFD_CLOEXEC, 0));
    const int fd = own.valid() ? own.get() : listed;
    struct stat status {};
    if (!IsTcpConnection(fd) || fstat(fd, &status) != 0) continue;
    visit(fd, status.st_ino);
  }
}

}  // namespace

SocketSet ConnectedTcpSockets() {
  SocketSet sockets;
  ForEachTcpConnection([&sockets](int, ino_t inode) { sockets.insert(inode); });
  return sockets;
}

void ShutDownTcpSockets(const SocketSet& except) {
  ForEachTcpConnection([&except](int fd, ino_t inode) {
    if (!except.contains(inode)) shutdown(fd, SHUT_RD);
  });
}

}  // namespace ddprun

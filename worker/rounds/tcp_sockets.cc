// SPDX-License-Identifier: Apache-2.0
#include "worker/rounds/tcp_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <functional>
#include <memory>
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
// closed by another thread, and be another file's, at any moment.
void ForEachTcpConnection(const std::function<void(int fd, ino_t inode)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (!folder) return;
  while (const dirent* entry = readdir(folder.get())) {
    char* end = nullptr;
    const int listed = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (end == entry->d_name || *end != '\0' || !IsTcpConnection(listed)) continue;
    const OwnedFd own(fcntl(listed, F_DUPFD_CLOEXEC, 0));
    struct stat status {};
    if (!own.valid() || !IsTcpConnection(own.get()) || fstat(own.get(), &status) != 0) continue;
    visit(own.get(), status.st_ino);
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

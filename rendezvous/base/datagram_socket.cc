// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/datagram_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace ddprun {
namespace {

bool IsOwnUser(const msghdr& header) {
  for (const cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&header), const_cast<cmsghdr*>(control))) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_CREDENTIALS) continue;
    ucred peer{};
    std::memcpy(&peer, CMSG_DATA(control), sizeof(peer));
    return peer.uid == geteuid() || peer.uid == 0;
  }
  return false;
}

}  // namespace

OwnedFd BindDatagramSocket(const sockaddr_un& address) {
  unlink(address.sun_path);  // first: its errno is not the one that the caller reports
  OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(fd.get(), AsSockaddr(address), sizeof(address)) != 0) {
    return OwnedFd();
  }
  chmod(address.sun_path, S_IRUSR | S_IWUSR);
  return fd;
}

bool ReceiveDatagram(int fd, char* buffer, std::size_t size,
                     std::optional<std::string_view>& text) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
  iovec part{buffer, size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t received = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  text.reset();
  if (received < 0) return false;
  if (IsOwnUser(header)) text.emplace(buffer, static_cast<std::size_t>(received));
  return true;
}

}  // namespace ddprun

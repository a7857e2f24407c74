// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/progress_sockets.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

// Checked although the folder belongs to this user alone.
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

// Absent: the path is too long.
std::optional<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

}  // namespace

absl::Status ProgressSockets::Open(const std::string& folder, const std::string& name, int worker) {
  if (!Has(worker)) sockets_.resize(Index(worker) + 1);
  Close(worker);
  Socket one;
  one.path = absl::StrCat(folder, "/progress_", name);
  const std::optional<sockaddr_un> address = AddressOf(one.path);
  if (!address.has_value())
    return absl::UnavailableError(absl::StrCat("the path ", one.path, " is too long"));
  unlink(one.path.c_str());  // first: its errno is not the one reported below
  one.fd = OwnedFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!one.fd.valid() || setsockopt(one.fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(one.fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot make the socket ", one.path, ": ",
                                               std::strerror(errno),
                                               "; check that folder and the limit on open files"));
  }
  chmod(one.path.c_str(), S_IRUSR | S_IWUSR);
  sockets_[Index(worker)] = std::move(one);
  return absl::OkStatus();
}

void ProgressSockets::Close(int worker) {
  if (!Has(worker)) return;
  Socket& one = sockets_[Index(worker)];
  if (!one.path.empty()) {
    unlink(one.path.c_str());
    unlink(RoundSocketPath(one.path).c_str());  // the worker's own
  }
  one = {};
}

void ProgressSockets::Close() {
  for (std::size_t i = 0; i < sockets_.size(); ++i) Close(static_cast<int>(i));
  sockets_.clear();
}

bool ProgressSockets::Send(int worker, const RoundMessage& message) const {
  const std::optional<sockaddr_un> address = AddressOf(RoundSocketPath(path(worker)));
  const std::string text = ToText(message);
  if (fd(worker) < 0 || !address.has_value() || text.size() > kRoundMessageBytesMax) return false;
  return sendto(fd(worker), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&*address),
                sizeof(*address)) == static_cast<ssize_t>(text.size());
}

std::optional<ProgressMessage> ProgressSockets::Read(int worker) {
  if (fd(worker) < 0) return std::nullopt;
  std::optional<ProgressMessage> all;
  std::array<char, kProgressMessageBytesMax> text;
  for (int i = 0; i < kProgressMessagesMax; ++i) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
    iovec part{text.data(), text.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t size = recvmsg(fd(worker), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) break;
    if (!IsOwnUser(header)) continue;
    ProgressMessage message = ParseProgress({text.data(), static_cast<std::size_t>(size)});
    if (all.has_value()) {
      Merge(message, *all);
    } else {
      all = std::move(message);
    }
  }
  return all;
}

}  // namespace ddprun

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

}  // namespace

absl::Status ProgressSockets::Open(const std::string& folder, std::uint64_t round, int workers) {
  Close();
  for (int worker = 0; worker < workers; ++worker) {
    Socket one;
    one.path = absl::StrCat(folder, "/progress_", round, "_", worker);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (one.path.size() >= sizeof(address.sun_path)) {
      return absl::UnavailableError(absl::StrCat("the path ", one.path, " is too long"));
    }
    std::memcpy(address.sun_path, one.path.c_str(), one.path.size());
    unlink(one.path.c_str());  // first: its errno is not the one reported below
    one.fd = OwnedFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (!one.fd.valid() ||
        setsockopt(one.fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
        bind(one.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot make the socket ", one.path, ": ", std::strerror(errno),
                       "; check that folder and the limit on open files"));
    }
    chmod(one.path.c_str(), S_IRUSR | S_IWUSR);
    sockets_.push_back(std::move(one));
  }
  return absl::OkStatus();
}

void ProgressSockets::Close() {
  for (const Socket& one : sockets_) unlink(one.path.c_str());
  sockets_.clear();
}

std::optional<ProgressMessage> ProgressSockets::Read(int worker) {
  if (Index(worker) >= sockets_.size()) return std::nullopt;
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

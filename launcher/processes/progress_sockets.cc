// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/progress_sockets.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/datagram_socket.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

// Socket of a worker that watches its collectives.
std::string PlaceSocketPath(const std::string& notify_path) { return notify_path + ".places"; }

}  // namespace

absl::Status ProgressSockets::Open(const std::string& folder, const std::string& name, int worker) {
  if (!Has(worker)) sockets_.resize(Index(worker) + 1);
  Close(worker);
  Socket one;
  one.path = absl::StrCat(folder, "/progress_", name);
  const absl::StatusOr<sockaddr_un> address = UnixAddress(one.path);
  if (!address.ok())
    return absl::UnavailableError(absl::StrCat("the path ", one.path, " is too long"));
  one.fd = BindDatagramSocket(*address);
  if (!one.fd.valid()) {
    return absl::UnavailableError(absl::StrCat("cannot make the socket ", one.path, ": ",
                                               std::strerror(errno),
                                               "; check that folder and the limit on open files"));
  }
  sockets_[Index(worker)] = std::move(one);
  return absl::OkStatus();
}

void ProgressSockets::Close(int worker) {
  if (!Has(worker)) return;
  Socket& one = sockets_[Index(worker)];
  if (!one.path.empty()) {
    unlink(one.path.c_str());
    unlink(RoundSocketPath(one.path).c_str());  // the worker's own
    unlink(PlaceSocketPath(one.path).c_str());
    unlink(NoticeSocketPath(one.path).c_str());
  }
  one = {};
}

void ProgressSockets::Close() {
  for (std::size_t i = 0; i < sockets_.size(); ++i) Close(static_cast<int>(i));
  sockets_.clear();
}

bool ProgressSockets::Send(int worker, const RoundMessage& message) const {
  const std::string text = ToText(message);
  return text.size() <= kRoundMessageBytesMax &&
         SendTo(worker, RoundSocketPath(path(worker)), text);
}

bool ProgressSockets::Send(int worker, const NoticeMessage& message) const {
  return SendTo(worker, NoticeSocketPath(path(worker)), ToText(message));
}

bool ProgressSockets::SendTo(int worker, const std::string& path, const std::string& text) const {
  const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (fd(worker) < 0 || !address.ok()) return false;
  return sendto(fd(worker), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                AsSockaddr(*address), sizeof(*address)) == static_cast<ssize_t>(text.size());
}

void ProgressSockets::AskPlace(int worker) const {
  const absl::StatusOr<sockaddr_un> address = UnixAddress(PlaceSocketPath(path(worker)));
  if (fd(worker) < 0 || !address.ok()) return;
  sendto(fd(worker), "?", 1, MSG_DONTWAIT | MSG_NOSIGNAL, AsSockaddr(*address), sizeof(*address));
}

std::optional<ProgressMessage> ProgressSockets::Read(int worker) {
  if (fd(worker) < 0) return std::nullopt;
  std::optional<ProgressMessage> all;
  std::array<char, kProgressMessageBytesMax> text;
  std::optional<std::string_view> one;
  for (int i = 0; i < kProgressMessagesMax; ++i) {
    if (!ReceiveDatagram(fd(worker), text.data(), text.size(), one)) break;
    if (!one.has_value()) continue;
    ProgressMessage message = ParseProgress(PrintableLines({one->data(), one->size()}));
    if (all.has_value()) {
      Merge(message, *all);
    } else {
      all = std::move(message);
    }
  }
  return all;
}

}  // namespace ddprun

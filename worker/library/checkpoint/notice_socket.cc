// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/notice_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/progress_message.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/datagram_socket.h"

namespace ddprun {
namespace {

constexpr std::string_view kNoticeKey = "NOTICE=";

// 0: it has none.
int NoticeNumberIn(std::string_view text) {
  if (!text.starts_with(kNoticeKey)) return 0;
  int number = 0;
  std::from_chars(text.data() + kNoticeKey.size(), text.data() + text.size(), number);
  return number;
}

}  // namespace

NoticeSocket::NoticeSocket(const std::string& notify_socket) {
  const auto notify = UnixAddress(notify_socket);
  const auto notices = UnixAddress(NoticeSocketPath(notify_socket));
  if (notify_socket.empty() || !notify.ok() || !notices.ok()) return;
  OwnedFd out(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.valid() || connect(out.get(), AsSockaddr(*notify), sizeof(*notify)) != 0) return;
  notify_ = std::move(out);
  notices_ = BindDatagramSocket(*notices);
  if (notices_.valid()) Send("NOTICES=1\n");
}

int NoticeSocket::Heard() {
  std::array<char, kProgressMessageBytesMax> buffer;
  std::optional<std::string_view> text;
  while (notices_.valid() && ReceiveDatagram(notices_.get(), buffer.data(), buffer.size(), text)) {
    if (text) heard_ = std::max(heard_, NoticeNumberIn(*text));
  }
  return heard_;
}

void NoticeSocket::TellSaved(int notice) {
  if (notice > told_ && Send("SAVED=" + std::to_string(notice) + "\n")) told_ = notice;
}

bool NoticeSocket::Send(const std::string& text) const {
  return notify_.valid() && send(notify_.get(), text.data(), text.size(), MSG_NOSIGNAL) >= 0;
}

}  // namespace ddprun

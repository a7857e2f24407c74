// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/tcp_peer.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

constexpr char kEstablished[] = "01";

// The kernel's form of an address and port: words of 32 bits in the host's order.
std::string KernelText(const void* address, std::size_t bytes, in_port_t port) {
  std::string text;
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint32_t)) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>(address) + i, sizeof word);
    absl::StrAppend(&text, absl::Hex(word, absl::kZeroPad8));
  }
  absl::StrAppend(&text, ":", absl::Hex(ntohs(port), absl::kZeroPad4));
  return absl::AsciiStrToUpper(text);
}

std::string KernelText(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    return KernelText(&v4.sin_addr, sizeof v4.sin_addr, v4.sin_port);
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  return KernelText(&v6.sin6_addr, sizeof v6.sin6_addr, v6.sin6_port);
}

socklen_t SizeOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

// An IPv4 address that an IPv6 socket sees, as itself.
sockaddr_storage Unmapped(const sockaddr_storage& from) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (from.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return from;
  sockaddr_storage to{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(to);
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  return to;
}

sockaddr_storage Mapped(const sockaddr_storage& from) {
  if (from.ss_family != AF_INET) return from;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
  sockaddr_storage to{};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(v6.sin6_addr.s6_addr + 12, &v4.sin_addr, sizeof v4.sin_addr);
  return to;
}

// The user of the socket that has these two ends, seen from itself. A socket that its process has
// closed is listed as root's until the connection is over, so only established ones count.
//
// By sock_diag(7), which looks one socket up. Absent also where the kernel has it not.
std::optional<uid_t> UserByDiag(const sockaddr_storage& own, const sockaddr_storage& other) {
  const OwnedFd netlink(
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } query{};
  query.header.nlmsg_len = sizeof query;
  query.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  query.header.nlmsg_flags = NLM_F_REQUEST;
  query.request.sdiag_family = static_cast<__u8>(own.ss_family);
  query.request.sdiag_protocol = IPPROTO_TCP;
  query.request.idiag_states = 1u << TCP_ESTABLISHED;
  inet_diag_sockid& id = query.request.id;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const auto put = [](const sockaddr_storage& from, __be16& port, __be32* address) {
    if (from.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
      port = v4.sin_port;
      std::memcpy(address, &v4.sin_addr, sizeof v4.sin_addr);
    } else {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
      port = v6.sin6_port;
      std::memcpy(address, &v6.sin6_addr, sizeof v6.sin6_addr);
    }
  };
  put(own, id.idiag_sport, id.idiag_src);
  put(other, id.idiag_dport, id.idiag_dst);
  if (send(netlink.get(), &query, sizeof query, 0) != sizeof query) return std::nullopt;
  // The kernel answers within send().
  alignas(nlmsghdr) std::array<char, 4096> answer{};
  const ssize_t size = recv(netlink.get(), answer.data(), answer.size(), 0);
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
    return std::nullopt;
  }
  const auto* message = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  const bool same = message->id.idiag_sport == id.idiag_sport &&
                    message->id.idiag_dport == id.idiag_dport &&
                    message->idiag_state == TCP_ESTABLISHED;
  return same ? std::optional<uid_t>(message->idiag_uid) : std::nullopt;
}

// The same from the list of all sockets, which takes the kernel milliseconds to make.
std::optional<uid_t> UserByTable(const char* table, const sockaddr_storage& own,
                                 const sockaddr_storage& other) {
  const std::string own_text = KernelText(own);
  const std::string other_text = KernelText(other);
  std::ifstream lines(table);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.find(own_text) == std::string::npos) continue;
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    if (fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user &&
        local == own_text && remote == other_text && state == kEstablished) {
      return user;
    }
  }
  return std::nullopt;
}

}  // namespace

TcpPeer PeerOf(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return {};
  }
  own = Unmapped(own);
  peer = Unmapped(peer);
  const auto* address = reinterpret_cast<const sockaddr*>(&peer);
  TcpPeer found{.address = NumericAddress(address, SizeOf(peer)),
                .on_this_host = IsLoopback(address)};
  if (!found.on_this_host) {
    const std::vector<std::string> here = OwnAddresses();
    found.on_this_host = std::find(here.begin(), here.end(), found.address) != here.end();
  }
  if (!found.on_this_host) return found;
  // An IPv4 connection may have been made by an IPv6 socket; sock_diag finds it either way.
  found.user = UserByDiag(peer, own);
  if (!found.user && peer.ss_family == AF_INET)
    found.user = UserByTable("/proc/net/tcp", peer, own);
  if (!found.user) found.user = UserByTable("/proc/net/tcp6", Mapped(peer), Mapped(own));
  return found;
}

}  // namespace ddprun

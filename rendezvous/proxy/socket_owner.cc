// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/socket_owner.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

constexpr absl::string_view kEstablished = "01";

// An established socket.
struct Listed {
  sockaddr_storage own{};
  sockaddr_storage other{};
  uid_t user = 0;
};
using OnListed = std::function<void(const Listed&)>;

in_port_t PortOf(const sockaddr_storage& of) {
  return of.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(of).sin_port
                                 : reinterpret_cast<const sockaddr_in6&>(of).sin6_port;
}

// In network order, as are all ports here; `address` has 4 or 16 bytes.
sockaddr_storage MakeAddress(int family, const void* address, in_port_t port) {
  sockaddr_storage made{};
  made.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(made);
    v4.sin_port = port;
    std::memcpy(&v4.sin_addr, address, sizeof v4.sin_addr);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made);
    v6.sin6_port = port;
    std::memcpy(&v6.sin6_addr, address, sizeof v6.sin6_addr);
  }
  return made;
}

const void* BytesOf(const sockaddr_storage& of) {
  if (of.ss_family == AF_INET) return &reinterpret_cast<const sockaddr_in&>(of).sin_addr;
  return &reinterpret_cast<const sockaddr_in6&>(of).sin6_addr;
}

// Without the scope, which one of two hosts may not see.
bool IsSame(const sockaddr_storage& a, const sockaddr_storage& b) {
  return a.ss_family == b.ss_family && PortOf(a) == PortOf(b) &&
         std::memcmp(BytesOf(a), BytesOf(b), a.ss_family == AF_INET ? 4 : 16) == 0;
}

// ---- sock_diag(7)

struct DiagQuery {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

DiagQuery MakeDiagQuery(int family, int flags) {
  DiagQuery query{};
  query.header.nlmsg_len = sizeof query;
  query.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  query.header.nlmsg_flags = static_cast<__u16>(NLM_F_REQUEST | flags);
  query.request.sdiag_family = static_cast<__u8>(family);
  query.request.sdiag_protocol = IPPROTO_TCP;
  query.request.idiag_states = 1u << TCP_ESTABLISHED;
  query.request.id.idiag_cookie[0] = query.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return query;
}

OwnedFd SendDiag(const DiagQuery& query) {
  OwnedFd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
  if (netlink.valid() && send(netlink.get(), &query, sizeof query, 0) != sizeof query)
    netlink.Reset();
  return netlink;
}

// The kernel answers within send(), and goes on within recv(). False: it has reported an error.
bool ReceiveDiag(int netlink, bool all, const std::function<void(const inet_diag_msg&)>& each) {
  alignas(nlmsghdr) std::array<char, 32 * 1024> buffer;
  while (true) {
    const ssize_t size = recv(netlink, buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    auto left = static_cast<unsigned>(size);
    const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data());
    for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return true;
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
          header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
        return false;
      }
      each(*static_cast<const inet_diag_msg*>(NLMSG_DATA(header)));
    }
    if (!all) return true;
  }
}

// Absent also where the kernel does not have sock_diag, and of a socket that is bound to a device.
std::optional<uid_t> UserByDiag(const sockaddr_storage& own, const sockaddr_storage& other) {
  DiagQuery query = MakeDiagQuery(own.ss_family, 0);
  inet_diag_sockid& id = query.request.id;
  const std::size_t bytes = own.ss_family == AF_INET ? 4 : 16;
  id.idiag_sport = PortOf(own);
  id.idiag_dport = PortOf(other);
  std::memcpy(id.idiag_src, BytesOf(own), bytes);
  std::memcpy(id.idiag_dst, BytesOf(other), bytes);
  const OwnedFd netlink = SendDiag(query);
  std::optional<uid_t> user;
  if (!netlink.valid()) return user;
  // A listening socket answers for one that is not there.
  ReceiveDiag(netlink.get(), /*all=*/false, [&](const inet_diag_msg& message) {
    const bool same = message.id.idiag_sport == id.idiag_sport &&
                      message.id.idiag_dport == id.idiag_dport &&
                      message.idiag_state == TCP_ESTABLISHED;
    if (same) user = message.idiag_uid;
  });
  return user;
}

bool ListByDiag(int family, in_port_t own_port, in_port_t other_port, const OnListed& each) {
  DiagQuery query = MakeDiagQuery(family, NLM_F_DUMP);
  query.request.id.idiag_sport = own_port;
  query.request.id.idiag_dport = other_port;
  const OwnedFd netlink = SendDiag(query);
  return netlink.valid() &&
         ReceiveDiag(netlink.get(), /*all=*/true, [&](const inet_diag_msg& message) {
           const inet_diag_sockid& id = message.id;
           each({Unmapped(MakeAddress(family, id.idiag_src, id.idiag_sport)),
                 Unmapped(MakeAddress(family, id.idiag_dst, id.idiag_dport)), message.idiag_uid});
         });
}

// ---- /proc/net/tcp

std::optional<std::string> ReadWhole(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string text;
  std::array<char, 64 * 1024> buffer;
  while (true) {
    const ssize_t got = read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// "0100007F:1F90": words of 32 bits in the host's order.
std::optional<sockaddr_storage> FromTable(const std::string& text) {
  const std::size_t digits = text.find(':');
  if (digits != 8 && digits != 32) return std::nullopt;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < digits / 8; ++i) {
    words[i] = static_cast<std::uint32_t>(
        std::strtoul(text.substr(i * 8, 8).c_str(), nullptr, /*base=*/16));
  }
  const auto port =
      static_cast<in_port_t>(std::strtoul(text.c_str() + digits + 1, nullptr, /*base=*/16));
  return MakeAddress(digits == 8 ? AF_INET : AF_INET6, words.data(), htons(port));
}

bool ListByTable(const std::string& table, in_port_t own_port, in_port_t other_port,
                 const OnListed& each) {
  const std::optional<std::string> text = ReadWhole(table);
  if (!text) return false;
  const std::string other_text = absl::StrFormat(":%04X %s ", ntohs(other_port), kEstablished);
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::StrContains(line, other_text)) continue;
    std::istringstream fields{std::string(line)};
    std::string number, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    if (!(fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user))
      continue;
    const auto own = FromTable(local);
    const auto other = FromTable(remote);
    if (own && other && state == kEstablished && PortOf(*other) == other_port &&
        (own_port == 0 || PortOf(*own) == own_port)) {
      each({Unmapped(*own), Unmapped(*other), user});
    }
  }
  return true;
}

// Established sockets with these ports; own_port 0: with any. False: no source answers. A
// connection over IPv4 may have been made by an IPv6 socket.
bool List(in_port_t own_port, in_port_t other_port, const SocketSources& sources,
          const OnListed& each) {
  bool listed = false;
  for (const int family : {AF_INET, AF_INET6})
    listed |= sources.sock_diag && ListByDiag(family, own_port, other_port, each);
  if (listed) return true;
  for (const std::string& table : {sources.tcp, sources.tcp6})
    listed |= ListByTable(table, own_port, other_port, each);
  return listed;
}

std::optional<sockaddr_storage> Parse(const std::string& text, int port) {
  std::array<char, sizeof(in6_addr)> address{};
  const std::string plain = PlainAddress(text);
  for (const int family : {AF_INET, AF_INET6}) {
    if (port > 0 && port <= 65'535 && inet_pton(family, plain.c_str(), address.data()) == 1)
      return MakeAddress(family, address.data(), htons(static_cast<in_port_t>(port)));
  }
  return std::nullopt;
}

}  // namespace

bool IsOurs(uid_t user) { return user == geteuid() || user == 0; }

sockaddr_storage Unmapped(const sockaddr_storage& from) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (from.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return from;
  return MakeAddress(AF_INET, v6.sin6_addr.s6_addr + 12, v6.sin6_port);
}

SocketOwner OwnerOf(const sockaddr_storage& own, const sockaddr_storage& other,
                    const SocketSources& sources) {
  if (sources.sock_diag) {
    if (const std::optional<uid_t> user = UserByDiag(own, other)) return {true, user};
  }
  SocketOwner owner;
  owner.known = List(PortOf(own), PortOf(other), sources, [&](const Listed& one) {
    if (IsSame(one.own, own) && IsSame(one.other, other)) owner.user = one.user;
  });
  return owner;
}

OwnerAnswer AnswerQuery(const OwnerQuery& query, const std::vector<std::string>& own,
                        const SocketSources& sources) {
  OwnerAnswer answer{.id = query.id, .ownership = Ownership::kNone};
  const TcpConnection& connection = query.connection;
  const auto client = Parse(connection.client_address, connection.client_port);
  const auto server = Parse(connection.server_address, connection.server_port);
  if (!client || !server) return answer;
  const bool client_differs =
      query.from_seen_address &&
      std::find(own.begin(), own.end(), connection.client_address) == own.end();
  std::optional<uid_t> exact = sources.sock_diag ? UserByDiag(*client, *server) : std::nullopt;
  std::optional<uid_t> likely;
  const in_port_t own_port = client_differs ? 0 : PortOf(*client);
  const bool known =
      exact || List(own_port, PortOf(*server), sources, [&](const Listed& one) {
        if (IsSame(one.own, *client) && IsSame(one.other, *server)) exact = one.user;
        const bool counts =
            client_differs
                ? IsOurs(one.user) && !IsLoopback(reinterpret_cast<const sockaddr*>(&one.other))
                : IsSame(one.own, *client);
        if (counts && (!likely || IsOurs(one.user))) likely = one.user;
      });
  const std::optional<uid_t> user = exact ? exact : likely;
  if (!known) {
    answer.ownership = Ownership::kUnknown;
  } else if (user && IsOurs(*user)) {
    answer.ownership = Ownership::kOwn;
  } else if (user) {
    answer.ownership = Ownership::kOtherUser;
    answer.user = *user;
  }
  return answer;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/nccl_ras.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kThreadName[] = "NCCL RAS";

// False: not before the deadline.
bool WaitFor(int fd, std::int16_t what, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd one{.fd = fd, .events = what, .revents = 0};
  return poll(&one, 1, std::max(0, static_cast<int>(left.count()))) == 1;
}

OwnedFd Connect(const RasAddress& address, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found) != 0) return {};
  OwnedFd connected;
  for (const addrinfo* one = found; one != nullptr && !connected.valid(); one = one->ai_next) {
    OwnedFd fd(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    if (connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || !WaitFor(fd.get(), POLLOUT, deadline))) {
      continue;
    }
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
      connected = std::move(fd);
  }
  freeaddrinfo(found);
  return connected;
}

// A request is far smaller than a socket's buffer.
bool Send(int fd, std::string_view text) {
  return send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Until its end, its limit or the deadline, or until it ends with `end` (if that is not 0).
std::string Receive(int fd, char end, std::size_t bytes_max, Clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < bytes_max && WaitFor(fd, POLLIN, deadline)) {
    const ssize_t size =
        recv(fd, buffer.data(), std::min(buffer.size(), bytes_max - text.size()), 0);
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
    if (end != '\0' && text.back() == end) break;
  }
  return text;
}

// Any process may have that port, and a person reads this in a terminal.
std::string Printable(absl::string_view line) {
  std::string text(line);
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t') c = '?';
  }
  return text;
}

}  // namespace

std::optional<RasAddress> RasAddressOf(const std::string& variables) {
  RasAddress address{"localhost", "28028"};
  for (const absl::string_view entry : absl::StrSplit(variables, '\0')) {
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos) continue;
    const absl::string_view name = entry.substr(0, equals);
    const absl::string_view value = entry.substr(equals + 1);
    if (name == "NCCL_RAS_ENABLE" && value != "1") return std::nullopt;
    if (name != "NCCL_RAS_ADDR") continue;
    const std::size_t colon = value.rfind(':');
    if (colon == value.npos) return std::nullopt;
    address.port = std::string(value.substr(colon + 1));
    absl::string_view host = value.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    address.host = std::string(host);
  }
  return address;
}

bool RunsRas(pid_t pid) {
  std::error_code error;
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = ReadSmallFile(absl::StrCat(it->path().string(), "/comm"));
    if (absl::StripAsciiWhitespace(name) == kThreadName) return true;
  }
  return false;
}

std::vector<std::string> AskRas(const RasAddress& address, std::chrono::milliseconds limit) {
  constexpr std::size_t kAnswerBytesMax = 1024;
  const Clock::time_point deadline = Clock::now() + limit;
  const OwnedFd fd = Connect(address, deadline);
  if (!fd.valid() || !Send(fd.get(), "CLIENT PROTOCOL 2\n")) return {};
  if (!absl::StartsWith(Receive(fd.get(), '\n', kAnswerBytesMax, deadline), "SERVER PROTOCOL "))
    return {};
  // So long the service waits for those of other ranks. An older one need not know this.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count() / 2;
  if (!Send(fd.get(), absl::StrCat("TIMEOUT ", std::max<std::int64_t>(1, seconds), "\n")))
    return {};
  Receive(fd.get(), '\n', kAnswerBytesMax, deadline);
  if (!Send(fd.get(), "VERBOSE STATUS\n")) return {};
  const std::string text = Receive(fd.get(), '\0', kRasBytesMax, deadline);
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    lines.push_back(absl::StrCat("    ", Printable(absl::StripTrailingAsciiWhitespace(line))));
  return lines;
}

}  // namespace ddprun

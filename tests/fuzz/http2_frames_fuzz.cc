// SPDX-License-Identifier: Apache-2.0
// The first bytes of a connection to the service and its HTTP/2 frames, from anyone.
#include "rendezvous/listener/first_bytes.h"
#include "rendezvous/listener/frame_guard.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {
namespace {

std::string Frame(int type, int flags, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return frame + std::string("\0\0\0\1", 4) + payload;
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  return {
      preface + Frame(4, 0, "settings") + Frame(1, 4, std::string(50, 'h')) + Frame(0, 1, "d"),
      preface + Frame(1, 0, "h") + Frame(9, 0, "h") + Frame(9, 4, "h") + Frame(6, 0, "pingping"),
      preface + Frame(3, 0, "rset") + Frame(8, 0, "wwww") + Frame(7, 0, "goaway")};
}

bool Try(std::string_view bytes) {
  const absl::string_view all(bytes.data(), bytes.size());
  const FirstBytes first = ReadFirstBytes(all);
  Require(first.server_name.empty() || first.kind == FirstBytes::Kind::kTls13,
          "only a ClientHello names a server");

  // The verdict does not depend on how the bytes were cut.
  FrameGuard whole{{}};
  const char* const verdict = whole.Feed(all, {});
  FrameGuard cut{{}};
  const char* verdict_cut = nullptr;
  for (std::size_t at = 0; at < all.size(); at += 7) {
    verdict_cut = cut.Feed(all.substr(at, 7), {});
  }
  Require(all.empty() || (verdict == nullptr) == (verdict_cut == nullptr),
          "frames are judged alike however they are cut");
  return verdict == nullptr;
}

}  // namespace ddprun::fuzz

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/first_bytes.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

constexpr std::size_t kRecordHeaderBytes = 5;
constexpr std::size_t kRecordBytesMax = 16384;
constexpr std::uint8_t kHandshakeRecord = 0x16;
constexpr std::uint8_t kClientHello = 1;
constexpr std::uint16_t kServerName = 0;
constexpr std::uint8_t kHostName = 0;
constexpr std::uint16_t kSupportedVersions = 43;
constexpr std::uint16_t kTls13Version = 0x0304;

constexpr std::size_t kFrameHeaderBytes = 9;
constexpr std::size_t kFrameBytesMax = 16384;
constexpr std::uint8_t kHeadersFrame = 1;
// More than any client sends before and with its first call.
constexpr std::size_t kRefusalBytesMax = 64u << 10;

// Reads big-endian numbers and counted pieces; after the first one that is not there everything is
// empty and good() false.
class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  bool good() const { return good_; }
  bool empty() const { return bytes_.empty(); }

  std::size_t Number(std::size_t width) {
    std::size_t number = 0;
    for (const char c : Take(width)) number = (number << 8) | static_cast<std::uint8_t>(c);
    return number;
  }
  // A piece with its length, in `width` bytes, before it.
  absl::string_view Counted(std::size_t width) {
    const std::size_t size = Number(width);
    return Take(size);
  }
  absl::string_view Take(std::size_t size) {
    if (!good_ || size > bytes_.size()) {
      good_ = false;
      bytes_ = {};
      return {};
    }
    const absl::string_view piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

 private:
  absl::string_view bytes_;
  bool good_ = true;
};

// The extensions of a ClientHello; nullopt if it is none. `record`: the payload of the first
// record, which must hold all of it.
std::optional<absl::string_view> ExtensionsOf(absl::string_view record) {
  Cursor outer(record);
  if (outer.Number(1) != kClientHello) return std::nullopt;
  Cursor hello(outer.Counted(3));
  hello.Take(2 + 32);  // version and random
  hello.Counted(1);    // session id
  hello.Counted(2);    // cipher suites
  hello.Counted(1);    // compression methods
  if (!outer.good() || !hello.good()) return std::nullopt;
  const absl::string_view extensions = hello.empty() ? absl::string_view() : hello.Counted(2);
  if (!hello.good()) return std::nullopt;
  return extensions;
}

FirstBytes ClassifyHello(absl::string_view record) {
  const std::optional<absl::string_view> all = ExtensionsOf(record);
  if (!all) return FirstBytes::kOther;
  Cursor extensions(*all);
  while (extensions.good() && !extensions.empty()) {
    const std::size_t type = extensions.Number(2);
    const absl::string_view extension = extensions.Counted(2);
    if (type != kSupportedVersions) continue;
    Cursor list(extension);
    Cursor versions(list.Counted(1));
    if (!list.good()) return FirstBytes::kOther;
    while (versions.good() && !versions.empty()) {
      if (versions.Number(2) == kTls13Version) return FirstBytes::kTls13;
    }
  }
  return extensions.good() ? FirstBytes::kTlsOlder : FirstBytes::kOther;
}

FirstBytes ClassifyTls(absl::string_view bytes) {
  if (bytes.size() >= 2 && bytes[1] != 3) return FirstBytes::kOther;
  if (bytes.size() < kRecordHeaderBytes) return FirstBytes::kIncomplete;
  Cursor cursor(bytes.substr(3));
  const std::size_t size = cursor.Number(2);
  if (size == 0 || size > kRecordBytesMax) return FirstBytes::kOther;
  if (bytes.size() > kRecordHeaderBytes && bytes[kRecordHeaderBytes] != kClientHello) {
    return FirstBytes::kOther;
  }
  if (bytes.size() < kRecordHeaderBytes + size) return FirstBytes::kIncomplete;
  return ClassifyHello(bytes.substr(kRecordHeaderBytes, size));
}

std::string Alert(char description) {
  return std::string("\x15\x03\x03\x00\x02\x02", 6) + description;
}

std::string Frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame + payload;
}

// HPACK: a literal without indexing, with a new name, without Huffman coding. For values under 127
// bytes.
std::string Literal(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

}  // namespace

FirstBytes Classify(absl::string_view bytes) {
  if (bytes.empty()) return FirstBytes::kIncomplete;
  if (static_cast<std::uint8_t>(bytes[0]) == kHandshakeRecord) return ClassifyTls(bytes);
  if (absl::StartsWith(bytes, kPreface)) return FirstBytes::kHttp2;
  return absl::StartsWith(kPreface, bytes) ? FirstBytes::kIncomplete : FirstBytes::kOther;
}

absl::string_view ServerNameOf(absl::string_view bytes) {
  Cursor record(bytes);
  record.Take(kRecordHeaderBytes - 2);
  const std::optional<absl::string_view> all = ExtensionsOf(record.Counted(2));
  if (!all) return {};
  Cursor extensions(*all);
  while (extensions.good() && !extensions.empty()) {
    const std::size_t type = extensions.Number(2);
    Cursor extension(extensions.Counted(2));
    if (type != kServerName) continue;
    Cursor names(extension.Counted(2));
    if (names.Number(1) != kHostName) return {};
    return names.Counted(2);
  }
  return {};
}

std::string ProtocolVersionAlert() { return Alert(70); }
std::string InsufficientSecurityAlert() { return Alert(71); }

std::string PlainTextRefusal::Begin() const { return Frame(4, 0, 0, ""); }  // empty SETTINGS

std::string PlainTextRefusal::Feed(absl::string_view bytes) {
  seen_ += bytes.size();
  while (!bytes.empty() && !done_) {
    if (skip_ > 0) {
      const std::size_t part = std::min(skip_, bytes.size());
      skip_ -= part;
      bytes.remove_prefix(part);
      continue;
    }
    const std::size_t part = std::min(kFrameHeaderBytes - header_.size(), bytes.size());
    header_.append(bytes.data(), part);
    bytes.remove_prefix(part);
    if (header_.size() < kFrameHeaderBytes) break;
    Cursor cursor(header_);
    skip_ = cursor.Number(3);
    const std::size_t type = cursor.Number(1);
    cursor.Take(1);
    const auto stream = static_cast<std::uint32_t>(cursor.Number(4));
    header_.clear();
    if (skip_ > kFrameBytesMax) done_ = true;
    if (type != kHeadersFrame || done_) continue;
    done_ = true;
    return Answer(stream);
  }
  if (seen_ > kRefusalBytesMax) done_ = true;
  return "";
}

// "Trailers only", as gRPC calls an answer that is nothing but a status.
std::string PlainTextRefusal::Answer(std::uint32_t stream) const {
  const std::string headers = std::string("\x88") +  // :status 200
                              Literal("content-type", "application/grpc") +
                              Literal("grpc-status", "16") +  // UNAUTHENTICATED
                              Literal("grpc-message", sentence_.substr(0, 126));
  return Frame(kHeadersFrame, 0x5, stream, headers);  // END_HEADERS, END_STREAM
}

}  // namespace ddprun

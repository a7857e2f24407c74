// SPDX-License-Identifier: Apache-2.0
#include "proto/limits/message_limits.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace ddprun {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kDepthMax = 100;  // protobuf's own

class Counter {
 public:
  explicit Counter(CodedInputStream& in) : in_(in) {}

  // False: it is too large, or malformed.
  bool Count(const Descriptor* type, int depth = 0) {
    if (depth > kDepthMax) return false;
    while (const std::uint32_t tag = in_.ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* const field =
          type == nullptr ? nullptr : type->FindFieldByNumber(number);
      switch (WireFormatLite::GetTagWireType(tag)) {
        case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
          if (!CountCounted(field, depth)) return false;
          break;
        case WireFormatLite::WIRETYPE_START_GROUP:  // ddprun's messages have no groups
        case WireFormatLite::WIRETYPE_END_GROUP:
          return false;
        default:
          if (!Add(kParsedNumberBytes) || !WireFormatLite::SkipField(&in_, tag)) return false;
      }
    }
    return true;
  }

  bool too_much() const { return bytes_ > kParsedBytesMax; }

 private:
  bool CountCounted(const FieldDescriptor* field, int depth) {
    int size = 0;
    if (!in_.ReadVarintSizeAsInt(&size)) return false;
    const auto bytes = static_cast<std::size_t>(size);
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      if (!Add(kParsedPartBytes)) return false;
      const CodedInputStream::Limit outer = in_.PushLimit(size);
      const bool good = Count(field->message_type(), depth + 1);
      in_.PopLimit(outer);
      return good;
    }
    // A packed list has at most one number in each byte.
    const bool numbers = field != nullptr && field->is_packable();
    return Add(numbers ? bytes * kParsedNumberBytes : bytes + kParsedTextBytes) && in_.Skip(size);
  }

  bool Add(std::size_t bytes) {
    bytes_ += bytes;
    return !too_much();
  }

  CodedInputStream& in_;
  std::size_t bytes_ = 0;
};

absl::Status Check(const Descriptor& type, CodedInputStream& in) {
  Counter counter(in);
  counter.Count(&type);
  if (!counter.too_much()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a ", type.name(), " message has so many parts that it would take more than ",
                   kParsedBytesMax >> 20, " MB of memory; send it as several messages"));
}

}  // namespace

absl::Status CheckParsedSize(const Descriptor& type, std::string_view bytes) {
  if (bytes.size() <= kUncheckedBytes) return absl::OkStatus();
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return Check(type, in);
}

absl::Status CheckParsedSize(const Descriptor& type,
                             google::protobuf::io::ZeroCopyInputStream& bytes) {
  CodedInputStream in(&bytes);
  return Check(type, in);
}

}  // namespace ddprun

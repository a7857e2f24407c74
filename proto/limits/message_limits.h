// SPDX-License-Identifier: Apache-2.0
// Limits the memory that a message takes after parsing, estimated from its bytes before parsing: an
// empty part takes two bytes on the wire and some hundred in memory.
// Not #pragma once: the header is part of a precompiled one, which ccache may return with the time
// stamps of another copy of this file.
#ifndef DDPRUN_PROTO_MESSAGE_LIMITS_H_
#define DDPRUN_PROTO_MESSAGE_LIMITS_H_

#include <cstddef>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace ddprun {

// Four times the largest message. ddprun's own largest message, the status of 16 384 nodes, counts
// as 40 MB.
inline constexpr std::size_t kParsedBytesMax = 64u << 20;
// What a part counts as, including the value that it is converted to.
inline constexpr std::size_t kParsedPartBytes = 512;
inline constexpr std::size_t kParsedTextBytes = 48;  // and its characters
inline constexpr std::size_t kParsedNumberBytes = 8;
// Smaller messages are not checked: they take at most some hundred KB.
inline constexpr std::size_t kUncheckedBytes = 4096;

// RESOURCE_EXHAUSTED, with a sentence: `bytes`, a message of that type, would take more than
// kParsedBytesMax. Malformed bytes pass; parsing rejects them.
absl::Status CheckParsedSize(const google::protobuf::Descriptor& type, std::string_view bytes);
absl::Status CheckParsedSize(const google::protobuf::Descriptor& type,
                             google::protobuf::io::ZeroCopyInputStream& bytes);

}  // namespace ddprun

#endif  // DDPRUN_PROTO_MESSAGE_LIMITS_H_

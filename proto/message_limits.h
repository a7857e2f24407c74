// SPDX-License-Identifier: Apache-2.0
// How much memory a message may take once it is parsed, judged by its bytes before it is parsed: an
// empty part takes two bytes on the wire and some hundred in memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace ddprun {

// Four times the largest message; the largest of ddprun's own, the status of 16 384 nodes, takes 40
// MB by this measure.
inline constexpr std::size_t kParsedBytesMax = 64u << 20;
// What a part counts as: itself, and what it is converted to.
inline constexpr std::size_t kParsedPartBytes = 512;
inline constexpr std::size_t kParsedTextBytes = 48;  // and its characters
inline constexpr std::size_t kParsedNumberBytes = 8;
// Smaller messages are not looked at: they take no more than some hundred KB.
inline constexpr std::size_t kUncheckedBytes = 4096;

// RESOURCE_EXHAUSTED, with a sentence: `bytes`, a message of that type, would take more than
// kParsedBytesMax. What is no message at all passes; parsing it finds that.
absl::Status CheckParsedSize(const google::protobuf::Descriptor& type, std::string_view bytes);
absl::Status CheckParsedSize(const google::protobuf::Descriptor& type,
                             google::protobuf::io::ZeroCopyInputStream& bytes);

}  // namespace ddprun

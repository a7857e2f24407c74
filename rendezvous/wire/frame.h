// SPDX-License-Identifier: Apache-2.0
// Messages of the store on an agent's unix socket: each follows its length, four bytes in
// little-endian order. gRPC is not used there: it would add most of 45 us to each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "google/protobuf/message_lite.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

inline constexpr std::size_t kFrameLengthBytes = 4;

std::string ToFrame(const google::protobuf::MessageLite& message);

// Splits the bytes from a socket into messages.
class FrameReader {
 public:
  // A buffer to read into, of at least `bytes`. Taken() reports how many bytes were read.
  std::pair<char*, std::size_t> Room(std::size_t bytes);
  void Taken(std::size_t bytes) { end_ += bytes; }

  // The next complete message, valid until Room() is called. False: there is none yet, or it is too
  // long (too_long()).
  bool Next(std::string_view* message);
  bool too_long() const { return too_long_; }

  // Frees an empty buffer that is larger than this.
  void Shrink(std::size_t bytes);

  // The size of the incomplete message, including its length prefix. 0: there is none, or its
  // length is incomplete too.
  std::size_t unfinished() const;

 private:
  std::size_t LengthAtBegin() const;

  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool too_long_ = false;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Messages of the store on an agent's unix socket: each behind its length, as four bytes, lowest
// first. No gRPC there: between two processes of one host most of its 45 us are its own.
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

// Cuts what comes from a socket into messages.
class FrameReader {
 public:
  // Where to read to: at least `bytes` of room. Taken() says how much has come.
  std::pair<char*, std::size_t> Room(std::size_t bytes);
  void Taken(std::size_t bytes) { end_ += bytes; }

  // The next whole message, valid until Room() is called. False: there is none yet, or never will
  // be since it is too long.
  bool Next(std::string_view* message);
  bool too_long() const { return too_long_; }

  // Gives memory back where more than this is kept for nothing.
  void Shrink(std::size_t bytes);

  // Of the message that has begun to come and is not whole: its length, with what is before it. 0:
  // there is none, or its length has not come either.
  std::size_t unfinished() const;

 private:
  std::size_t LengthAtBegin() const;

  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool too_long_ = false;
};

}  // namespace ddprun

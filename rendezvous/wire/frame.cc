// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/frame.h"

#include <algorithm>
#include <cstring>

#include "google/protobuf/io/coded_stream.h"

namespace ddprun {
std::string ToFrame(const google::protobuf::MessageLite& message) {
  const std::size_t size = message.ByteSizeLong();
  std::string frame(kFrameLengthBytes + size, '\0');
  auto* to = reinterpret_cast<std::uint8_t*>(frame.data());
  message.SerializeWithCachedSizesToArray(
      google::protobuf::io::CodedOutputStream::WriteLittleEndian32ToArray(
          static_cast<std::uint32_t>(size), to));
  return frame;
}

std::pair<char*, std::size_t> FrameReader::Room(std::size_t bytes) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    // The room of a large message is not kept.
    if (buffer_.size() > 4 * bytes) buffer_ = std::string();
  } else if (buffer_.size() - end_ < bytes && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < bytes) buffer_.resize(std::max(end_ + bytes, 2 * buffer_.size()));
  return {buffer_.data() + end_, buffer_.size() - end_};
}

void FrameReader::Shrink(std::size_t bytes) {
  if (begin_ != end_ || buffer_.size() <= bytes) return;
  begin_ = end_ = 0;
  buffer_ = std::string();
}

std::size_t FrameReader::LengthAtBegin() const {
  std::uint32_t length = 0;
  google::protobuf::io::CodedInputStream::ReadLittleEndian32FromArray(
      reinterpret_cast<const std::uint8_t*>(buffer_.data() + begin_), &length);
  return length;
}

std::size_t FrameReader::unfinished() const {
  return end_ - begin_ < kFrameLengthBytes ? 0 : kFrameLengthBytes + LengthAtBegin();
}

bool FrameReader::Next(std::string_view* message) {
  if (too_long_ || end_ - begin_ < kFrameLengthBytes) return false;
  const std::size_t length = LengthAtBegin();
  if (length > kMessageBytesMax) {
    too_long_ = true;
    return false;
  }
  if (end_ - begin_ < kFrameLengthBytes + length) return false;
  *message = std::string_view(buffer_).substr(begin_ + kFrameLengthBytes, length);
  begin_ += kFrameLengthBytes + length;
  return true;
}

}  // namespace ddprun

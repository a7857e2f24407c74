// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/frame.h"

#include <cstring>

#include "google/protobuf/io/coded_stream.h"
#include "proto/ddprun.pb.h"

namespace ddprun {
namespace {

using google::protobuf::io::CodedOutputStream;

constexpr std::size_t kLengthBytes = 4;

std::uint8_t* PutLength(std::size_t length, std::uint8_t* to) {
  return CodedOutputStream::WriteLittleEndian32ToArray(static_cast<std::uint32_t>(length), to);
}

constexpr std::uint32_t TagOf(int field, int wire_type) {
  return static_cast<std::uint32_t>(field << 3 | wire_type);
}
constexpr int kVarint = 0;
constexpr int kLengthDelimited = 2;

}  // namespace

std::string ToFrame(const google::protobuf::MessageLite& message) {
  const std::size_t size = message.ByteSizeLong();
  std::string frame(kLengthBytes + size, '\0');
  auto* to = reinterpret_cast<std::uint8_t*>(frame.data());
  message.SerializeWithCachedSizesToArray(PutLength(size, to));
  return frame;
}

// The fields of a message may come in any order, so the id is put before the rest.
std::vector<std::string> ToReplyFrames(const google::protobuf::MessageLite& reply,
                                       const std::vector<std::uint64_t>& ids) {
  constexpr std::uint32_t kReplyTag =
      TagOf(v1::StoreReplies::kRepliesFieldNumber, kLengthDelimited);
  constexpr std::uint32_t kIdTag = TagOf(v1::StoreReply::kIdFieldNumber, kVarint);
  const std::string rest = reply.SerializeAsString();
  std::vector<std::string> frames;
  frames.reserve(ids.size());
  for (const std::uint64_t id : ids) {
    const std::size_t inner = 1 + CodedOutputStream::VarintSize64(id) + rest.size();
    const std::size_t size = 1 + CodedOutputStream::VarintSize64(inner) + inner;
    std::string frame(kLengthBytes + size, '\0');
    auto* to = PutLength(size, reinterpret_cast<std::uint8_t*>(frame.data()));
    to = CodedOutputStream::WriteTagToArray(kReplyTag, to);
    to = CodedOutputStream::WriteVarint64ToArray(inner, to);
    to = CodedOutputStream::WriteTagToArray(kIdTag, to);
    to = CodedOutputStream::WriteVarint64ToArray(id, to);
    std::memcpy(to, rest.data(), rest.size());
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::pair<char*, std::size_t> FrameReader::Room(std::size_t bytes) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    // A large message does not keep its room.
    if (buffer_.size() > 4 * bytes) buffer_ = std::string();
  } else if (buffer_.size() - end_ < bytes && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < bytes) buffer_.resize(std::max(end_ + bytes, 2 * buffer_.size()));
  return {buffer_.data() + end_, buffer_.size() - end_};
}

bool FrameReader::Next(std::string_view* message) {
  if (too_long_ || end_ - begin_ < kLengthBytes) return false;
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(buffer_[begin_ + i]))
              << (8 * i);
  }
  if (length > kMessageBytesMax) {
    too_long_ = true;
    return false;
  }
  if (end_ - begin_ < kLengthBytes + length) return false;
  *message = std::string_view(buffer_).substr(begin_ + kLengthBytes, length);
  begin_ += kLengthBytes + length;
  return true;
}

}  // namespace ddprun

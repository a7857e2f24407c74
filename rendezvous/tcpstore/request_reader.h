// SPDX-License-Identifier: Apache-2.0
// Splits the bytes of a client into requests. Each byte is looked at once, however the requests are
// cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/tcpstore/protocol.h"

namespace ddprun::tcpstore {

// The fields in their order, by their types.
struct ClientRequest {
  const RequestKind* kind = nullptr;
  std::vector<std::string> keys = {};
  std::vector<std::string> values = {};
  std::vector<std::int64_t> numbers = {};
};

class RequestReader {
 public:
  void Append(std::string_view bytes);

  // The opcode of the next request. Nothing: there is no byte of it, or status() is not OK.
  std::optional<Opcode> Peek();
  // The next request. Nothing: it is not complete, or status() is not OK.
  std::optional<ClientRequest> Next();

  // Bytes that are held of requests that were not taken yet, and those of the first of them as far
  // as its fields are known; it may have first_bytes_max().
  std::size_t held() const { return taken_ + in_.size() - begin_; }
  std::size_t first_bytes() const { return taken_ + needed_; }
  std::size_t first_bytes_max() const;
  // What has yet to come of it: of the field at which it ends so far, and of the keys that follow
  // it, if they are as long as those before. 0: it is not incomplete.
  std::size_t first_missing() const;
  // For good: what follows is no request (INVALID_ARGUMENT), or above a limit (RESOURCE_EXHAUSTED).
  const absl::Status& status() const { return status_; }

 private:
  bool TakeField(char field);
  template <typename T>
  std::optional<T> TakeNumber();
  bool TakeBytes(const char* what, std::size_t max, std::vector<std::string>& to);
  bool Has(std::uint64_t bytes);
  void Taken(std::size_t bytes);
  void Fail(absl::StatusCode code, const std::string& what);

  std::string in_;
  std::size_t begin_ = 0;   // in in_: what was taken before
  std::size_t needed_ = 0;  // from there, for the next field
  ClientRequest request_;   // what was taken of it
  std::size_t field_ = 0;
  std::size_t repeat_from_ = 0;
  std::uint64_t repeats_ = 0;
  std::size_t repeat_begin_ = 0;  // taken_ before the first of the fields that repeat
  std::size_t repeats_taken_ = 0;
  std::size_t taken_ = 0;  // its bytes
  absl::Status status_;
};

}  // namespace ddprun::tcpstore

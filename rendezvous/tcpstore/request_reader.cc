// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tcpstore/request_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun::tcpstore {
namespace {

// What a request says that it has is believed up to there.
constexpr std::size_t kReservedKeys = 128;

}  // namespace

void RequestReader::Append(std::string_view bytes) {
  if (!status_.ok()) return;
  in_.erase(0, std::exchange(begin_, 0));
  if (in_.empty() && in_.capacity() > kSmallRequestBytes) in_ = std::string();
  // Not twice as much, as a string grows by itself.
  if (needed_ > in_.capacity()) in_.reserve(needed_);
  in_ += bytes;
}

std::optional<Opcode> RequestReader::Peek() {
  if (!status_.ok()) return std::nullopt;
  if (request_.kind != nullptr) return request_.kind->opcode;
  if (!Has(1)) return std::nullopt;
  return static_cast<Opcode>(in_[begin_]);
}

std::optional<ClientRequest> RequestReader::Next() {
  const std::optional<Opcode> opcode = Peek();
  if (!opcode) return std::nullopt;
  if (request_.kind == nullptr) {
    request_.kind = FindKind(*opcode);
    if (request_.kind == nullptr) {
      Fail(absl::StatusCode::kInvalidArgument,
           absl::StrCat("has the unknown opcode ", static_cast<int>(*opcode),
                        "; where its torch is newer than this ddprun, update ddprun, or start "
                        "with --worker-store rank0"));
      return std::nullopt;
    }
    Taken(1);
  }
  const std::string_view fields = request_.kind->fields;
  while (field_ < fields.size()) {
    if (!TakeField(fields[field_])) return std::nullopt;
    ++field_;
    if (field_ == fields.size() && repeats_ > 0) {
      ++repeats_taken_;
      if (--repeats_ > 0) field_ = repeat_from_;
    }
  }
  field_ = 0;
  taken_ = 0;
  repeats_ = 0;
  repeats_taken_ = 0;
  return std::exchange(request_, {});
}

std::size_t RequestReader::first_bytes_max() const {
  const bool repeats = request_.kind != nullptr && request_.kind->fields.starts_with('*');
  return repeats ? kMessageBytesMax : first_bytes();
}

std::size_t RequestReader::first_missing() const {
  if (first_bytes() <= held()) return 0;
  const std::size_t of_field = first_bytes() - held();
  if (repeats_ <= 1 || repeats_taken_ == 0) return of_field;
  return of_field +
         static_cast<std::size_t>(repeats_ - 1) * ((taken_ - repeat_begin_) / repeats_taken_);
}

bool RequestReader::TakeField(char field) {
  switch (field) {
    case 'k':
      return TakeBytes("key", kKeyBytesMax, request_.keys);
    case 'v':
      return TakeBytes("value", kValueBytesMax, request_.values);
    case 'i':
      if (const auto number = TakeNumber<std::uint32_t>()) {
        request_.numbers.push_back(*number);
        return true;
      }
      return false;
    case 'n':
      if (const auto number = TakeNumber<std::int64_t>()) {
        request_.numbers.push_back(*number);
        return true;
      }
      return false;
    default:  // *
      if (const auto count = TakeNumber<std::uint64_t>()) {
        if (*count > kTcpStoreKeysMax) {
          Fail(absl::StatusCode::kResourceExhausted,
               absl::StrCat("names ", *count, " keys; at most ", kTcpStoreKeysMax, " are allowed"));
          return false;
        }
        repeats_ = *count;
        repeat_from_ = field_ + 1;
        repeat_begin_ = taken_;
        request_.keys.reserve(std::min<std::size_t>(*count, kReservedKeys));
        if (*count == 0) field_ = request_.kind->fields.size() - 1;  // nothing is repeated
        return true;
      }
      return false;
  }
}

template <typename T>
std::optional<T> RequestReader::TakeNumber() {
  if (!Has(sizeof(T))) return std::nullopt;
  T number{};
  std::memcpy(&number, in_.data() + begin_, sizeof number);
  Taken(sizeof number);
  return number;
}

bool RequestReader::TakeBytes(const char* what, std::size_t max, std::vector<std::string>& to) {
  std::uint64_t size = 0;
  if (!Has(sizeof size)) return false;
  std::memcpy(&size, in_.data() + begin_, sizeof size);
  if (size > max) {
    Fail(absl::StatusCode::kResourceExhausted,
         absl::StrCat("has a ", what, " of ", size, " bytes; at most ", max, " are allowed"));
    return false;
  }
  if (taken_ + sizeof size + size > kMessageBytesMax) {
    Fail(absl::StatusCode::kResourceExhausted,
         absl::StrCat("has more than ", kMessageBytesMax, " bytes"));
    return false;
  }
  if (!Has(sizeof size + size)) return false;
  to.emplace_back(in_, begin_ + sizeof size, static_cast<std::size_t>(size));
  Taken(sizeof size + static_cast<std::size_t>(size));
  return true;
}

bool RequestReader::Has(std::uint64_t bytes) {
  needed_ = static_cast<std::size_t>(bytes);
  return in_.size() - begin_ >= bytes;
}

void RequestReader::Taken(std::size_t bytes) {
  begin_ += bytes;
  taken_ += bytes;
  needed_ = 0;
}

void RequestReader::Fail(absl::StatusCode code, const std::string& what) {
  status_ = absl::Status(code, absl::StrCat("a request of its TCPStore ", what));
  in_ = std::string();
  begin_ = 0;
  request_ = {};
}

}  // namespace ddprun::tcpstore

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/record_values.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr char kBegins = 'R';
constexpr char kGoesOn = '+';
constexpr std::size_t kLengthBytes = 4;

std::string Length(std::size_t bytes) {
  std::string text(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) text[i] = static_cast<char>(bytes >> (8 * i));
  return text;
}

std::size_t ReadLength(absl::string_view text) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes |= static_cast<std::size_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  }
  return bytes;
}

}  // namespace

std::vector<std::string> CutIntoValues(const std::vector<std::string>& records,
                                       std::size_t bytes_max) {
  std::vector<std::string> values;
  std::string value;
  for (const std::string& record : records) {
    const std::string bytes = Length(record.size()) + record;
    if (!value.empty() && value.size() + bytes.size() > bytes_max) {
      values.push_back(std::exchange(value, ""));
    }
    if (value.empty()) value = kBegins;
    for (std::size_t at = 0; at < bytes.size();) {
      if (value.size() == bytes_max)
        values.push_back(std::exchange(value, std::string(1, kGoesOn)));
      const std::size_t room = std::min(bytes_max - value.size(), bytes.size() - at);
      value.append(bytes, at, room);
      at += room;
    }
  }
  if (!value.empty()) values.push_back(std::move(value));
  return values;
}

absl::Status RecordReader::Add(absl::string_view value, const OnRecord& on_record) {
  if (value.empty() || (value[0] != kBegins && value[0] != kGoesOn))
    return absl::DataLossError("has no records");
  // The rest of a record was never written: its writer was replaced meanwhile.
  if (value[0] == kBegins) pending_.clear();
  if (value[0] == kGoesOn && pending_.empty()) return absl::DataLossError("continues no record");
  pending_.append(value.data() + 1, value.size() - 1);
  absl::string_view rest = pending_;
  while (rest.size() >= kLengthBytes) {
    const std::size_t bytes = ReadLength(rest);
    if (bytes > kJournalRecordBytesMax) return absl::DataLossError("has no length of a record");
    if (rest.size() < kLengthBytes + bytes) break;
    absl::Status status = on_record(rest.substr(kLengthBytes, bytes));
    if (!status.ok()) return status;
    rest.remove_prefix(kLengthBytes + bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return absl::OkStatus();
}

}  // namespace ddprun

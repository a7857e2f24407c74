// SPDX-License-Identifier: Apache-2.0
// A journal's records as values of bounded size, for etcd's keys and for messages: a stream of
// records that is cut. A value is a byte that says whether it begins a record ('R') or goes on with
// the last one ('+'), then for each record its length (4 bytes, little endian) and its bytes. A
// record whose end is not there was never acknowledged.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The values that hold these records.
std::vector<std::string> CutIntoValues(const std::vector<std::string>& records,
                                       std::size_t bytes_max);

// Puts records together again.
class RecordReader {
 public:
  using OnRecord = std::function<absl::Status(absl::string_view record)>;

  // The next value. DATA_LOSS: it is not one of these values. Or what `on_record` returned.
  absl::Status Add(absl::string_view value, const OnRecord& on_record);

 private:
  std::string pending_;
};

}  // namespace ddprun

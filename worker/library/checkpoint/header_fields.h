// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a checkpoint's header (Snapshot::about). Its checksum says that it is as it
// was written, not that train wrote it: every value is checked before it is used.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/detail/training_position.h"

namespace ddprun {

// The end of a sentence that begins with the file: "'step' in its metadata is -1, but must be a
// whole number from 0 to 1000".
struct HeaderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An object of the header. All methods but Has() throw HeaderError for a field that is missing, of
// another type or out of its range; the ranges are in header_fields.cc.
class HeaderFields {
 public:
  // `object` must outlive this one. `name`: its own, which comes before those of its fields; empty:
  // the header itself. Throws HeaderError if it is no object.
  explicit HeaderFields(const nlohmann::json& object, std::string name = "");

  bool Has(const std::string& key) const { return object_.contains(key); }
  std::vector<std::string> Keys() const;

  bool Flag(const std::string& key) const;
  std::string Text(const std::string& key) const;
  std::vector<std::string> Texts(const std::string& key) const;
  // The value of a field that has a range.
  std::int64_t Count(const std::string& key) const;
  double Number(const std::string& key) const;
  double Real(const std::string& key) const;  // may be negative
  std::vector<float> Numbers(const std::string& key) const;
  HeaderFields Object(const std::string& key) const;

 private:
  const nlohmann::json& At(const std::string& key) const;
  [[noreturn]] void Fail(const std::string& key, const std::string& rule) const;

  const nlohmann::json& object_;
  const std::string name_;
};

// Checks the fields that are there, also those that no reader needs. A program of its own that
// saves by ddprun::Checkpoints has fewer of them. Not "buckets", without which a training goes on
// too, nor fields that this version does not know. Throws HeaderError.
void CheckHeaderFields(const HeaderFields& header);

TrainingPosition PositionIn(const HeaderFields& header);

}  // namespace ddprun

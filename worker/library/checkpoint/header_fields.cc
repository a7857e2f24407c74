// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/header_fields.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace ddprun {
namespace {

using Json = nlohmann::json;

enum class FieldType {
  kFlag,
  kText,
  kTexts,
  kTextsByName,
  kCount,
  kNumber,
  kReal,
  kNumbers,
  kObject
};

struct Field {
  std::string_view object;  // the name of the object that it is in
  std::string_view key;
  FieldType type;
  std::int64_t least = 0;  // of a count
  std::int64_t most = 0;
};

// No product of these that a training computes leaves 64 bits: the steps of all epochs, the numbers
// of an image.
constexpr std::int64_t kStepsMost = 1'000'000'000'000'000;
constexpr std::int64_t kCountMost = 1'000'000'000;
constexpr std::int64_t kHeightMost = 100'000;
constexpr std::int64_t kChannelsMost = 10'000;
// Fits a float.
constexpr double kNumberMost = 3e38;

constexpr Field kFields[] = {
    {"", "version", FieldType::kText},
    {"", "training", FieldType::kText},
    {"", "step", FieldType::kCount, 0, kStepsMost},
    {"", "epoch", FieldType::kCount, 0, kCountMost},
    {"", "consumed", FieldType::kCount, 0, kStepsMost},
    {"", "reached_target", FieldType::kFlag},
    {"", "evaluation_due", FieldType::kFlag},
    {"", "best", FieldType::kObject},
    {"best", "step", FieldType::kCount, 0, kStepsMost},
    {"best", "epoch", FieldType::kNumber},
    {"best", "accuracy", FieldType::kNumber},
    {"best", "loss", FieldType::kReal},
    {"best", "since", FieldType::kCount, 0, kStepsMost},
    {"", "world_size", FieldType::kCount, 1, kCountMost},
    {"", "batch_size", FieldType::kCount, 1, kCountMost},
    {"", "scaler", FieldType::kObject},
    {"scaler", "scale", FieldType::kNumber},
    {"scaler", "steps_since_growth", FieldType::kCount, 0, kStepsMost},
    {"", "config", FieldType::kTextsByName},
    {"", "data", FieldType::kObject},
    {"data", "classes", FieldType::kCount, 1, kCountMost},
    {"data", "channels", FieldType::kCount, 1, kChannelsMost},
    {"data", "height", FieldType::kCount, 1, kHeightMost},
    {"data", "width", FieldType::kCount, 1, kCountMost},
    {"data", "images", FieldType::kCount, 0, kStepsMost},
    {"data", "mean", FieldType::kNumbers},
    {"data", "std", FieldType::kNumbers},
    {"data", "class_names", FieldType::kTexts},
};

const Field& FieldOf(std::string_view object, std::string_view key) {
  for (const Field& field : kFields) {
    if (field.object == object && field.key == key) return field;
  }
  throw std::logic_error("the field " + std::string(key) + " has no range in header_fields.cc");
}

// As JSON in ASCII, on one line; not all of what is long.
std::string Shown(const Json& value) {
  constexpr std::size_t kLengthMax = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kLengthMax) text = text.substr(0, kLengthMax) + "...";
  return text;
}

std::string ShownName(const std::string& name) {
  const std::string quoted = Shown(name);
  return quoted.substr(1, quoted.size() - (quoted.ends_with('"') ? 2 : 1));
}

bool IsCount(const Json& value, const Field& field) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>()))
    return false;
  const auto count = value.get<std::int64_t>();
  return count >= field.least && count <= field.most;
}

bool IsNumber(const Json& value, double least) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= kNumberMost;
}

bool AreTexts(const Json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& each) { return each.is_string(); });
}

bool AreNumbers(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& each) {
           return IsNumber(each, -kNumberMost);
         });
}

void CheckFieldsOf(const HeaderFields& fields, std::string_view name) {
  for (const Field& field : kFields) {
    const std::string key(field.key);
    if (field.object != name || !fields.Has(key)) continue;
    switch (field.type) {
      case FieldType::kFlag:
        fields.Flag(key);
        break;
      case FieldType::kText:
        fields.Text(key);
        break;
      case FieldType::kTexts:
        fields.Texts(key);
        break;
      case FieldType::kTextsByName: {
        const HeaderFields texts = fields.Object(key);
        for (const std::string& each : texts.Keys()) texts.Text(each);
        break;
      }
      case FieldType::kCount:
        fields.Count(key);
        break;
      case FieldType::kNumber:
        fields.Number(key);
        break;
      case FieldType::kReal:
        fields.Real(key);
        break;
      case FieldType::kNumbers:
        fields.Numbers(key);
        break;
      case FieldType::kObject:
        CheckFieldsOf(fields.Object(key), field.key);
        break;
    }
  }
}

}  // namespace

HeaderFields::HeaderFields(const Json& object, std::string name)
    : object_(object), name_(std::move(name)) {
  if (object.is_object()) return;
  throw HeaderError("'" + (name_.empty() ? std::string("ddprun") : name_) +
                    "' in its metadata is " + Shown(object) + ", but must be an object");
}

std::vector<std::string> HeaderFields::Keys() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items()) keys.push_back(item.key());
  return keys;
}

bool HeaderFields::Flag(const std::string& key) const {
  const Json& value = At(key);
  if (!value.is_boolean()) Fail(key, "true or false");
  return value.get<bool>();
}

std::string HeaderFields::Text(const std::string& key) const {
  const Json& value = At(key);
  if (!value.is_string()) Fail(key, "a string");
  return value.get<std::string>();
}

std::vector<std::string> HeaderFields::Texts(const std::string& key) const {
  const Json& value = At(key);
  if (!AreTexts(value)) Fail(key, "an array of strings");
  return value.get<std::vector<std::string>>();
}

std::int64_t HeaderFields::Count(const std::string& key) const {
  const Json& value = At(key);
  const Field& field = FieldOf(name_, key);
  if (!IsCount(value, field))
    Fail(key, "a whole number from " + std::to_string(field.least) + " to " +
                  std::to_string(field.most));
  return value.get<std::int64_t>();
}

double HeaderFields::Number(const std::string& key) const {
  const Json& value = At(key);
  if (!IsNumber(value, 0)) Fail(key, "a number from 0 to " + Shown(kNumberMost));
  return value.get<double>();
}

double HeaderFields::Real(const std::string& key) const {
  const Json& value = At(key);
  if (!IsNumber(value, -kNumberMost)) Fail(key, "a number up to " + Shown(kNumberMost));
  return value.get<double>();
}

std::vector<float> HeaderFields::Numbers(const std::string& key) const {
  const Json& value = At(key);
  if (!AreNumbers(value)) Fail(key, "an array of numbers up to " + Shown(kNumberMost));
  return value.get<std::vector<float>>();
}

HeaderFields HeaderFields::Object(const std::string& key) const {
  const Json& value = At(key);
  if (!value.is_object()) Fail(key, "an object");
  return HeaderFields(value, name_.empty() ? key : name_ + "." + key);
}

const Json& HeaderFields::At(const std::string& key) const {
  const auto found = object_.find(key);
  if (found != object_.end()) return *found;
  const std::string name = name_.empty() ? key : name_ + "." + key;
  throw HeaderError("its metadata have no '" + ShownName(name) + "'");
}

void HeaderFields::Fail(const std::string& key, const std::string& rule) const {
  const std::string name = name_.empty() ? key : name_ + "." + key;
  throw HeaderError("'" + ShownName(name) + "' in its metadata is " + Shown(object_.at(key)) +
                    ", but must be " + rule);
}

void CheckHeaderFields(const HeaderFields& header) {
  CheckFieldsOf(header, "");
  if (!header.Has("consumed") || !header.Has("data")) return;
  const HeaderFields data = header.Object("data");
  if (!data.Has("images") || header.Count("consumed") <= data.Count("images")) return;
  throw HeaderError("'consumed' in its metadata is " + std::to_string(header.Count("consumed")) +
                    ", but its training data are " + std::to_string(data.Count("images")) +
                    " images");
}

TrainingPosition PositionIn(const HeaderFields& header) {
  return {.step = header.Count("step"),
          .epoch = header.Count("epoch"),
          .consumed = header.Count("consumed")};
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Converts structs to messages and back from one list of their fields, so that a field cannot be
// written and not read. For this room's converters only.
//
//   DDPRUN_MESSAGE(Hang) {
//     FIELD(kind);
//     TEXT(section, kSectionBytesMax);
//   }
//
// A list is a template over the direction; `value` and `message` are its arguments. A field that is
// absent, or has an enumerator that this version does not know, keeps its default.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "google/protobuf/generated_enum_reflection.h"
#include "proto/text.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun::fields {

struct ToMessage {};
struct ToValue {};

template <typename T>
std::int64_t ToWire(TimePoint from, const T*) {
  return std::chrono::nanoseconds(from.time_since_epoch()).count();
}
template <typename T>
std::int64_t ToWire(std::chrono::microseconds from, const T*) {
  return from.count();
}
template <typename From, typename Wire>
Wire ToWire(From from, const Wire*) {
  return static_cast<Wire>(from);
}

inline void Save(const std::string& from, std::string* to) { *to = from; }
inline void Save(std::chrono::milliseconds from, google::protobuf::Duration* to) {
  *to = ToDuration(from);
}
template <typename From, typename Message>
requires std::is_class_v<From>
void Save(const From& from, Message* to) { *to = ToProto(from); }
template <typename T, typename Repeated>
void Save(const std::vector<T>& from, Repeated* to, std::size_t count_max = SIZE_MAX) {
  for (std::size_t i = 0; i < std::min(from.size(), count_max); ++i) {
    if constexpr (std::is_class_v<typename Repeated::value_type>) {
      Save(from[i], to->Add());
    } else {
      to->Add(ToWire(from[i], static_cast<typename Repeated::value_type*>(nullptr)));
    }
  }
}

// `read`: FromProto() of the caller's file.
template <typename Read>
void Load(const std::string& from, std::string& to, Read) {
  to = from;
}
template <typename Read>
void Load(const google::protobuf::Duration& from, std::chrono::milliseconds& to, Read) {
  to = ToMilliseconds(from);
}
template <typename Read>
void Load(std::int64_t from, TimePoint& to, Read) {
  to = TimePoint(std::chrono::nanoseconds(from));
}
template <typename Read>
void Load(std::int64_t from, std::chrono::microseconds& to, Read) {
  to = std::chrono::microseconds(from);
}
template <typename Wire, typename T, typename Read>
void Load(const Wire& from, T& to, Read read) {
  if constexpr (std::is_class_v<Wire>) {
    to = read(from);
  } else if constexpr (std::is_enum_v<Wire>) {
    const auto* type = google::protobuf::GetEnumDescriptor<Wire>();
    if (from != 0 && type->FindValueByNumber(from) != nullptr) to = static_cast<T>(from);
  } else {
    to = static_cast<T>(from);
  }
}
template <typename Repeated, typename T, typename Read>
void Load(const Repeated& from, std::vector<T>& to, Read read, std::size_t count_max = SIZE_MAX) {
  to.resize(std::min(static_cast<std::size_t>(from.size()), count_max));
  for (std::size_t i = 0; i < to.size(); ++i) Load(from.Get(static_cast<int>(i)), to[i], read);
}
template <typename Wire, typename T, typename Read>
void Load(const Wire& from, std::optional<T>& to, Read read) {
  Load(from, to.emplace(), read);
}

template <typename T>
const T* Find(const T& field) {
  return &field;
}
template <typename T>
const T* Find(const std::optional<T>& field) {
  return field ? &*field : nullptr;
}

inline std::string CutUtf8(const std::string& text, std::size_t bytes_max) {
  return ToUtf8(CutText(text, bytes_max));
}
inline std::string CutPrintable(const std::string& text, std::size_t bytes_max) {
  return Printable(CutText(text, bytes_max));
}
inline std::string CutPrintableLines(const std::string& text, std::size_t bytes_max) {
  return PrintableLines(CutText(text, bytes_max));
}

enum Which { kFirst, kLast };
template <typename Texts>
std::vector<const std::string*> Some(const Texts& texts, std::size_t count_max, Which which) {
  std::vector<const std::string*> some;
  some.reserve(static_cast<std::size_t>(texts.size()));
  for (const std::string& text : texts) some.push_back(&text);
  if (some.size() > count_max) {
    const auto begin =
        which == kFirst ? some.begin() + static_cast<std::ptrdiff_t>(count_max) : some.begin();
    some.erase(begin, begin + static_cast<std::ptrdiff_t>(some.size() - count_max));
  }
  return some;
}

}  // namespace ddprun::fields

// A list without conversions, for those that are written by hand.
#define DDPRUN_FIELDS(Struct)                                                 \
  template <typename Way, typename Value, typename Message>                   \
  requires std::is_same_v<std::remove_const_t<Value>, Struct>                 \
  static void Fields([[maybe_unused]] Way way, [[maybe_unused]] Value& value, \
                     [[maybe_unused]] Message& message)

// ToProto() and FromProto() of a struct and the message of its name, and their list.
#define DDPRUN_MESSAGE(Struct)                   \
  DDPRUN_FIELDS(Struct);                         \
  v1::Struct ToProto(const Struct& value) {      \
    v1::Struct message;                          \
    Fields(fields::ToMessage{}, value, message); \
    return message;                              \
  }                                              \
  Struct FromProto(const v1::Struct& message) {  \
    Struct value;                                \
    Fields(fields::ToValue{}, value, message);   \
    return value;                                \
  }                                              \
  DDPRUN_FIELDS(Struct)

#define READ [](const auto& from) { return FromProto(from); }
#define LOADING (std::is_same_v<Way, fields::ToValue>)

// A number, an enum, a time, bytes, another struct, or a list of these.
#define FIELD_AS(field, name)                                                  \
  if constexpr (LOADING) {                                                     \
    if constexpr (requires { message.has_##name(); }) {                        \
      if (message.has_##name()) fields::Load(message.name(), field, READ);     \
    } else {                                                                   \
      fields::Load(message.name(), field, READ);                               \
    }                                                                          \
  } else if (const auto* found = fields::Find(field)) {                        \
    if constexpr (requires { message.mutable_##name(); }) {                    \
      fields::Save(*found, message.mutable_##name());                          \
    } else {                                                                   \
      using Wire = std::decay_t<decltype(message.name())>;                     \
      message.set_##name(fields::ToWire(*found, static_cast<Wire*>(nullptr))); \
    }                                                                          \
  }
#define FIELD(name) FIELD_AS(value.name, name)

// The first elements of a list.
#define LIST_AS(field, name, count_max)                       \
  if constexpr (LOADING) {                                    \
    fields::Load(message.name(), field, READ, count_max);     \
  } else {                                                    \
    fields::Save(field, message.mutable_##name(), count_max); \
  }
#define LIST(name, count_max) LIST_AS(value.name, name, count_max)

// A count that is absent where it is not known; the struct has -1 then.
#define COUNT(name)                                                                    \
  if constexpr (LOADING) {                                                             \
    if (message.has_##name()) value.name = std::max<std::int64_t>(message.name(), -1); \
  } else if (value.name >= 0) {                                                        \
    message.set_##name(value.name);                                                    \
  }

// Text of another process: cut, UTF-8 in the message, printable in the struct.
#define TEXT_AS(field, name, bytes_max)                      \
  if constexpr (LOADING) {                                   \
    field = fields::CutPrintable(message.name(), bytes_max); \
  } else {                                                   \
    message.set_##name(fields::CutUtf8(field, bytes_max));   \
  }
#define TEXT(name, bytes_max) TEXT_AS(value.name, name, bytes_max)

// The same, of several lines.
#define LINES(name, bytes_max)                                         \
  if constexpr (LOADING) {                                             \
    value.name = fields::CutPrintableLines(message.name(), bytes_max); \
  } else {                                                             \
    message.set_##name(fields::CutUtf8(value.name, bytes_max));        \
  }

// A list of text: its first elements, or its last ones.
#define TEXTS_OF(name, count_max, bytes_max, which)                         \
  if constexpr (LOADING) {                                                  \
    for (const auto* text : fields::Some(message.name(), count_max, which)) \
      value.name.push_back(fields::CutPrintable(*text, bytes_max));         \
  } else {                                                                  \
    for (const auto* text : fields::Some(value.name, count_max, which))     \
      message.add_##name(fields::CutUtf8(*text, bytes_max));                \
  }
#define TEXTS(name, count_max, bytes_max) TEXTS_OF(name, count_max, bytes_max, fields::kFirst)
#define LAST_TEXTS(name, count_max, bytes_max) TEXTS_OF(name, count_max, bytes_max, fields::kLast)

// Ranges of ranks: the first and the last of each, in turn.
#define RANGES(field, name, count_max)           \
  if constexpr (LOADING) {                       \
    field = RangesOf(message.name(), count_max); \
  } else {                                       \
    AddRanges(field, message.mutable_##name());  \
  }

// One alternative of a variant and of the message's oneof.
#define KIND(Struct, name)                                       \
  if constexpr (LOADING) {                                       \
    if (message.has_##name()) value = FromProto(message.name()); \
  } else if (const auto* kind = std::get_if<Struct>(&value)) {   \
    *message.mutable_##name() = ToProto(*kind);                  \
  }

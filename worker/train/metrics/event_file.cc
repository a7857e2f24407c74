// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/event_file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "worker/library/files/crc32c.h"

namespace ddprun {
namespace {

// Field numbers of event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SessionLogField { kStatus = 1 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
constexpr std::uint64_t kSessionStart = 1;  // SessionLog.START

// Wire types of Protocol Buffers.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr char kPrefix[] = "events.out.tfevents.";

template <typename Number>
void AppendRaw(std::string& out, Number number) {
  char bytes[sizeof number];  // little-endian in both formats, as are the machines that train
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof bytes);
}

void AppendVarint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
  out.push_back(static_cast<char>(number));
}

void AppendKey(std::string& out, int field, WireType type) {
  AppendVarint(out, static_cast<std::uint64_t>(field) << 3 | type);
}

void AppendBytes(std::string& out, int field, std::string_view bytes) {
  AppendKey(out, field, kBytes);
  AppendVarint(out, bytes.size());
  out += bytes;
}

// The mask keeps a checksum of data that holds checksums from being weak.
std::uint32_t MaskedCrc(std::string_view bytes) {
  const std::uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string Event(std::int64_t step, double time) {
  std::string event;
  AppendKey(event, kWallTime, kFixed64);
  AppendRaw(event, time);
  AppendKey(event, kStep, kVarint);
  AppendVarint(event, static_cast<std::uint64_t>(step));
  return event;
}

// The seconds in an EventFileName(); 0 for any other name.
std::int64_t SecondsOf(std::string_view name) {
  if (name.substr(0, std::strlen(kPrefix)) != kPrefix) return 0;
  name.remove_prefix(std::strlen(kPrefix));
  std::int64_t seconds = 0;
  std::from_chars(name.data(), name.data() + name.size(), seconds);
  return seconds;
}

}  // namespace

std::string TfRecord(std::string_view payload) {
  std::string record;
  AppendRaw(record, static_cast<std::uint64_t>(payload.size()));
  AppendRaw(record, MaskedCrc(record));
  record += payload;
  AppendRaw(record, MaskedCrc(payload));
  return record;
}

std::string FileVersionEvent(double time) {
  std::string event = Event(0, time);
  AppendBytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string StartEvent(std::int64_t step, double time) {
  std::string log;
  AppendKey(log, kStatus, kVarint);
  AppendVarint(log, kSessionStart);
  std::string event = Event(step, time);
  AppendBytes(event, kSessionLog, log);
  return event;
}

std::string ScalarsEvent(std::int64_t step, double time, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    AppendBytes(value, kTag, scalar.name);
    AppendKey(value, kSimpleValue, kFixed32);
    AppendRaw(value, static_cast<float>(scalar.value));
    AppendBytes(summary, kValue, value);
  }
  std::string event = Event(step, time);
  AppendBytes(event, kSummary, summary);
  return event;
}

std::string EventFileName(const std::vector<std::string>& present, std::int64_t seconds,
                          const std::string& host, int process) {
  for (const std::string& name : present) seconds = std::max(seconds, SecondsOf(name) + 1);
  char digits[32];
  std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(seconds));
  return std::string(kPrefix) + digits + "." + host + "." + std::to_string(process) + ".0";
}

}  // namespace ddprun

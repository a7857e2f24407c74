// SPDX-License-Identifier: Apache-2.0
#include "proto/failure_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/input_file.h"
#include "proto/json_text.h"
#include "proto/output_file.h"
#include "proto/text.h"

namespace ddprun {
namespace {

// A record with a long traceback in "extraInfo" fits; a log file passed by mistake does not.
constexpr std::size_t kRecordBytesMax = 1 << 20;

std::string Cut(std::string text) { return CutText(std::move(text), kFailureMessageBytesMax); }

// The end of a traceback is the most useful part. Whole lines only.
std::string LastPart(const std::string& text) {
  if (text.size() <= kFailureMessageBytesMax) return text;
  const std::size_t end_of_line = text.find('\n', text.size() - kFailureMessageBytesMax);
  return end_of_line == std::string::npos ? Cut(text) : text.substr(end_of_line + 1);
}

}  // namespace

absl::Status WriteFailureRecord(const std::string& path, const FailureRecord& record,
                                long long timestamp_seconds) {
  nlohmann::json message = {{"message", Cut(record.message)},
                            {"extraInfo", {{"timestamp", std::to_string(timestamp_seconds)}}}};
  if (!record.traceback.empty()) message["extraInfo"]["py_callstack"] = LastPart(record.traceback);
  if (record.error_code.has_value()) message["errorCode"] = *record.error_code;
  const std::string text = JsonText(nlohmann::json{{"message", message}});
  return WriteWholeFile(path, text, 0600);
}

absl::StatusOr<FailureRecord> ReadFailureRecord(const std::string& path) {
  // A worker may have created anything at that path.
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kRecordBytesMax);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat("cannot read the failure record ", path,
                                                           ": ", text.status().message()));
  }
  const auto record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("message")) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a failure record"));
  }
  const auto& message = record["message"];
  if (message.is_string())
    return FailureRecord{.message = Cut(message.get<std::string>()), .traceback = ""};
  if (!message.is_object() || !message.contains("message") || !message["message"].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has no text in its \"message\""));
  }
  FailureRecord read{.message = Cut(message["message"].get<std::string>()), .traceback = ""};
  const auto extra = message.find("extraInfo");
  if (extra != message.end() && extra->is_object() && extra->contains("py_callstack") &&
      (*extra)["py_callstack"].is_string()) {
    read.traceback = LastPart((*extra)["py_callstack"].get<std::string>());
  }
  return read;
}

}  // namespace ddprun

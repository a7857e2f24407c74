// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

void ReadFilters(Reader& reader, const Value& value, std::vector<std::string>& to) {
  to = ParseFilters(value.text);
  if (std::find(to.begin(), to.end(), "") != to.end()) {
    reader.Fail(value,
                "a list of texts: one of them is empty, and every line has it (a comma that is "
                "meant is written twice)");
  }
}

// `otherwise` says what the text should be, if there is no result.
template <typename T>
void Take(Reader& reader, const Value& value, std::optional<T> result, const char* otherwise,
          T& to) {
  if (!result.has_value()) return reader.Fail(value, otherwise);
  to = *std::move(result);
}

}  // namespace

void ReadInto(Reader& reader, const Flag&, const Value& value, StreamSpec& to) {
  Take(reader, value, ParseStreamSpec(value.text),
       "0, 1, 2 or 3 (no stream, stdout, stderr, both), nor a list by local rank such as "
       "0:3,11:1",
       to);
}

void ReadInto(Reader& reader, const Flag&, const Value& value, std::set<int>& to) {
  Take(reader, value, ParseLocalRanks(value.text), "a list of local ranks such as 0,1,2", to);
}

void ReadInto(Reader& reader, const Flag&, const Value& value, LogRotation& to) {
  Take(reader, value, ParseLogRotation(value.text),
       "SIZE or SIZE:FILES, from 1K on, such as 100M or 1G:5", to);
}

void ReadOutFilters(Reader& reader, const Flag&, const Value& value, Options& options) {
  ReadFilters(reader, value, options.logs.out_filters);
}

void ReadErrFilters(Reader& reader, const Flag&, const Value& value, Options& options) {
  ReadFilters(reader, value, options.logs.err_filters);
}

void ReadLinePrefix(Reader& reader, const Flag&, const Value& value, Options& options) {
  if (value.text.size() > kLinePrefixBytesMax) {
    reader.FailWith(absl::StrCat(value.source, " is longer than ", kLinePrefixBytesMax, " bytes"));
  }
  if (value.text.find_first_of("\r\n") != std::string::npos)
    reader.FailWith(absl::StrCat(value.source, " has a line end, which no prefix of a line can"));
  const absl::StatusOr<std::string> filled = FillPrefix(value.text, {});
  if (!filled.ok()) {
    reader.FailWith(absl::StrCat(value.source, " '", value.text, "' ", filled.status().message()));
  }
  options.logs.line_prefix = value.text;
}

}  // namespace ddprun

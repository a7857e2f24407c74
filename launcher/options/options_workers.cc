// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/options/run_flags.h"

namespace ddprun {
namespace {

constexpr std::pair<const char*, ProcPerNode> kProcPerNodeNames[] = {
    {"auto", ProcPerNode::kAuto}, {"gpu", ProcPerNode::kGpu}, {"cpu", ProcPerNode::kCpu},
    {"xpu", ProcPerNode::kXpu},   {"npu", ProcPerNode::kNpu},
};

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

bool IsModuleName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  return std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
    return !part.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(part[0])) &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
           });
  });
}

}  // namespace

void ReadProcPerNode(Reader& reader, const Flag&, const Value& value, Options& options) {
  for (const auto& [name, kind] : kProcPerNodeNames) {
    if (value.text != name) continue;
    options.proc_per_node = kind;
    return;
  }
  if (!absl::SimpleAtoi(value.text, &options.proc_per_node_number) ||
      options.proc_per_node_number < 1 || options.proc_per_node_number > kLocalWorldSizeMax) {
    reader.Fail(value, absl::StrCat("a number of workers from 1 to ", kLocalWorldSizeMax,
                                    ", auto, gpu, cpu, xpu or npu; devices of another kind are "
                                    "not counted here: give their number"));
  }
}

// What follows the last colon is a part of the name if it is no number.
void ReadRole(Reader& reader, const Flag&, const Value& value, Options& options) {
  options.role = value.text;
  if (value.text.empty()) return reader.Fail(value, "a name");
  const std::size_t colon = value.text.rfind(':');
  if (colon == std::string::npos || !IsNumber(value.text.substr(colon + 1))) return;
  int& workers = options.workers.emplace();
  if (colon == 0 || !absl::SimpleAtoi(value.text.substr(colon + 1), &workers) || workers < 1 ||
      workers > kLocalWorldSizeMax) {
    reader.Fail(value, absl::StrCat("a name, or NAME:COUNT with a number of workers from 1 to ",
                                    kLocalWorldSizeMax));
  }
  options.role.resize(colon);
}

void ReadPreload(Reader& reader, const Flag&, const Value& value, Options& options) {
  for (const absl::string_view part : absl::StrSplit(value.text, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    options.preload.emplace_back(name);
    if (!IsModuleName(name) || options.preload.size() > kPreloadModulesMax) {
      return reader.Fail(value, absl::StrCat("a list of up to ", kPreloadModulesMax,
                                             " Python modules, as in torch,numpy.random"));
    }
  }
}

void ReadFlightRecorder(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  options.hangs.flight_recorder = ReadChoice(reader, flag, value) == 0;
}

void ReadInto(Reader& reader, const Flag&, const Value& value, std::vector<WorkerWrap>& to) {
  for (const absl::string_view text : absl::StrSplit(value.text, kRepeatSeparator)) {
    absl::StatusOr<WorkerWrap> wrap = ParseWrap(text);
    if (!wrap.ok()) {
      return reader.FailWith(absl::StrCat(value.source, " '", text, "' ", wrap.status().message()));
    }
    to.push_back(*std::move(wrap));
  }
  if (const int rank = FindRankInTwo(to); rank >= 0) {
    reader.FailWith(absl::StrCat(value.source, " gives rank ", rank,
                                 " two commands; write both into one, as in ", rank,
                                 ":\"FIRST SECOND\""));
  }
}

void ReadInto(Reader& reader, const Flag&, const Value& value, WorkerStdin& to) {
  if (value.text == "shared") return;
  if (value.text == "none") {
    to.to = WorkerStdin::To::kNone;
  } else if (absl::SimpleAtoi(value.text, &to.rank) && to.rank >= 0 &&
             to.rank < kNodesMax * kLocalWorldSizeMax) {
    to.to = WorkerStdin::To::kRank;
  } else {
    reader.Fail(value, "a rank, none or shared");
  }
}

}  // namespace ddprun

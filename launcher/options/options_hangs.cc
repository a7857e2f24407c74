// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/options_hangs.h"

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

constexpr double kSecondsMax = std::chrono::seconds(kHangTimeoutMax).count();

std::chrono::milliseconds SecondsOrNever(Reader& reader, const char* flag,
                                         std::chrono::milliseconds otherwise) {
  const Value* value = reader.Find(flag);
  if (value != nullptr && value->text == "0") return std::chrono::milliseconds{0};
  return reader.Seconds(flag, kSecondsMax).value_or(otherwise);
}

}  // namespace

const std::vector<Flag> kHangFlags = {
    {"--hang-timeout", 0, "SECONDS",
     "a worker that tells of its progress hangs if it tells of none for so long (1800; 0: never)"},
    {"--init-timeout", 0, "SECONDS",
     "so does one that has told of none since its start (0: it may never do)"},
    {"--heartbeat-timeout", 0, "SECONDS",
     "so does one that writes nothing and tells of nothing for so long (0: never)"},
    {"--on-hang", 0, "kill|report",
     "its stacks are shown, and it counts as failed, or goes on (kill)"},
};

HangOptions ReadHangOptions(Reader& reader) {
  HangOptions options;
  options.hang_timeout = SecondsOrNever(reader, "--hang-timeout", kHangTimeoutDefault);
  options.init_timeout = SecondsOrNever(reader, "--init-timeout", {});
  options.heartbeat_timeout = SecondsOrNever(reader, "--heartbeat-timeout", {});
  options.on_hang = reader.Choice("--on-hang", {"kill", "report"}, "kill") == "report"
                        ? OnHang::kReport
                        : OnHang::kKill;
  return options;
}

}  // namespace ddprun

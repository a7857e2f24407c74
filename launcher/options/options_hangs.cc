// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

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
     "Time without progress after which a worker that reports progress hangs (1800; 0: never)."},
    {"--init-timeout", 0, "SECONDS",
     "The same for a worker that has reported none since its start (0: no limit)."},
    {"--heartbeat-timeout", 0, "SECONDS",
     "Time without output and progress after which any worker hangs (0: never)."},
    {"--on-hang", 0, "kill|report",
     "After printing its stacks: fail the hung worker, or let it run (kill)."},
    {"--flight-recorder", 0, "on|off",
     "Read in which collective of torch.distributed a worker is, from PyTorch's flight recorder "
     "(on)."},
    {"--evict-stragglers", 0, nullptr,
     "Leave the run where a rank of this node is slower than its peers and a spare node stands "
     "by."},
};

HangOptions ReadHangOptions(Reader& reader) {
  HangOptions options;
  options.hang_timeout = SecondsOrNever(reader, "--hang-timeout", kHangTimeoutDefault);
  options.init_timeout = SecondsOrNever(reader, "--init-timeout", {});
  options.heartbeat_timeout = SecondsOrNever(reader, "--heartbeat-timeout", {});
  options.on_hang = reader.Choice<OnHang>(
      "--on-hang", {{"kill", OnHang::kKill}, {"report", OnHang::kReport}}, OnHang::kKill);
  options.flight_recorder =
      reader.Choice<bool>("--flight-recorder", {{"on", true}, {"off", false}}, true);
  options.evict_stragglers = reader.Switch("--evict-stragglers");
  return options;
}

}  // namespace ddprun

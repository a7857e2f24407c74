// SPDX-License-Identifier: Apache-2.0
#include "launcher/simulate/simulate_options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/options/run_flags.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

// "5s,12s:process", as a flag's value is found here.
static void ReadInto(Reader& reader, const Flag& flag, const Value& value,
                     std::vector<FleetFailure>& to) {
  for (absl::string_view item : absl::StrSplit(value.text, ',')) {
    FleetFailure failure;
    failure.of_process = absl::ConsumeSuffix(&item, ":process");
    ReadInto(reader, flag, {std::string(item), value.source}, failure.at);
    to.push_back(failure);
  }
}

namespace {

// Simulated in seconds of CPU time.
constexpr int kSimulatedNodesMax = 10'000;
constexpr int kSeedsMax = 100;
constexpr std::int64_t kSimulatedSecondsMax = 365 * 24 * 3600;
constexpr std::int64_t kMtbfSecondsMax = 1000 * kSimulatedSecondsMax;  // of one machine: 1000 years

using SimulateFlag = FlagOf<SimulateRequest>;

template <auto... path>
inline constexpr auto SetsPlan = Sets<&SimulateRequest::plan, path...>;

constexpr SimulateFlag kSimulateFlags[] = {
    {"--nodes", "N", "Machines that the run uses.", SetsPlan<&FleetPlan::nodes>,
     Between(1, kSimulatedNodesMax)},
    {"--mtbf", "TIME", "Mean time between failures of these machines, all together; exponential.",
     Sets<&SimulateRequest::mtbf>, UpTo(kMtbfSecondsMax)},
    {"--node-mtbf", "TIME", "Mean time between failures of one machine, in place of --mtbf.",
     SetsPlan<&FleetPlan::node_mtbf>, UpTo(kMtbfSecondsMax)},
    {"--process-mtbf", "TIME",
     "Mean time between deaths of a process whose machine stays, of all together (none).",
     SetsPlan<&FleetPlan::process_mtbf>, UpTo(kMtbfSecondsMax)},
    {"--failures-at", "TIME[:process],...",
     "Times at which a machine, or only a process, fails, such as 5s,12s:process.",
     SetsPlan<&FleetPlan::failures>, UpTo(kSimulatedSecondsMax)},
    {"--spares", "N", "Machines that stand by ({}).", SetsPlan<&FleetPlan::spares>,
     Between(0, kSimulatedNodesMax)},
    {"--repair", "TIME", "Time until a failed machine joins again ({}).",
     SetsPlan<&FleetPlan::repair>, UpTo(kSimulatedSecondsMax)},
    {"--duration", "TIME", "Time that is simulated ({}).", SetsPlan<&FleetPlan::duration>,
     UpTo(kSimulatedSecondsMax)},
    {"--checkpoint", "TIME", "Time between checkpoints (the best one, by Young and Daly).",
     SetsPlan<&FleetPlan::checkpoint_every>, UpTo(kSimulatedSecondsMax)},
    {"--checkpoint-cost", "TIME",
     "Time for which a checkpoint stalls training ({}: torch.save of 89 MB).",
     SetsPlan<&FleetPlan::checkpoint_cost>, ZeroOrUpTo(kSimulatedSecondsMax)},
    {"--restart-cost", "TIME",
     "Time from the end of a round to the first step of the next: start, imports, loading ({}: "
     "Python with torch).",
     SetsPlan<&FleetPlan::restart_cost>, ZeroOrUpTo(kSimulatedSecondsMax)},
    {"--in-place", nullptr, "Workers are kept when a peer dies: no step is lost but the current.",
     SetsPlan<&FleetPlan::in_place>},
    {"--in-place-cost", "TIME", "The same time for workers that are kept ({}).",
     SetsPlan<&FleetPlan::in_place_cost>, ZeroOrUpTo(kSimulatedSecondsMax)},
    {"--min-nodes", "N", "Go on with so few machines: MIN of ddprun --nnodes MIN:MAX (all).",
     SetsPlan<&FleetPlan::nodes_min>, Between(1, kSimulatedNodesMax)},
    {"--lease", "TIME", "As of ddprun ({}): after it a silent machine is lost.",
     SetsPlan<&FleetPlan::lease>, UpTo(InSeconds(kLeaseMax))},
    {"--last-call", "TIME", "As of ddprun ({}).", SetsPlan<&FleetPlan::last_call>,
     UpTo(InSeconds(kLastCallMax))},
    {"--join-timeout", "TIME", "As of ddprun (as long as the run needs).",
     SetsPlan<&FleetPlan::join_timeout>, UpTo(kJoinSecondsMax)},
    {"--max-restarts", "N", "As of ddprun (as many as the run needs).",
     SetsPlan<&FleetPlan::restarts_max>, UpTo(kRestartsMax)},
    {"--restart-window", "TIME", "As of ddprun.",
     SetsPlan<&FleetPlan::policy, &RestartPolicy::window>, UpTo(kRestartSecondsMax)},
    {"--restart-reset", "TIME", "As of ddprun.",
     SetsPlan<&FleetPlan::policy, &RestartPolicy::reset>, UpTo(kRestartSecondsMax)},
    {"--seed", "N", "Seed of the first simulated run ({}).", Sets<&SimulateRequest::seed>,
     Between(0, 1'000'000'000)},
    {"--seeds", "N", "Simulated runs, each with the next seed ({}).", Sets<&SimulateRequest::seeds>,
     Between(1, kSeedsMax)},
    {"--json", nullptr, "Print JSON.", Sets<&SimulateRequest::json>},
};

std::string Help() {
  return absl::StrCat(
      "Usage: ddprun simulate --nodes N --mtbf TIME [FLAGS]\n\n"
      "Shows which part of a fleet's time would go into training, what the rest would be spent "
      "on, and which setting\nto change first. The rules of real runs decide; machines, failures "
      "and time are simulated. Times: 90s, 4h, 7d.\nThe costs are those measured with small "
      "models: give your own.\n\n",
      FlagsHelp(SimulateFlags()), "  -h, --help                        print this\n\n",
      "  ddprun simulate --nodes 1000 --mtbf 4h --spares 2 --checkpoint 90s\n"
      "  ddprun simulate --nodes 8 --failures-at 9h,31h:process --duration 2d\n");
}

absl::Status Complete(const ParsedFlags& parsed, SimulateRequest& request) {
  FleetPlan& plan = request.plan;
  const auto has = [&](const char* flag) { return parsed.values.contains(flag); };
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (!parsed.rest.empty())
    return wrong("simulate takes flags only, but got '", parsed.rest.front(),
                 "'; ddprun simulate --help lists them");
  if (plan.nodes == 0) return wrong("--nodes is missing; say how many machines the run uses");
  if (has("--mtbf") && has("--node-mtbf"))
    return wrong("--mtbf and --node-mtbf say the same; give one of them");
  if (!has("--mtbf") && !has("--node-mtbf") && !has("--process-mtbf") && !has("--failures-at"))
    return wrong("no failures are given; add --mtbf TIME or --failures-at TIME,...");
  if (plan.nodes_min > plan.nodes)
    return wrong("--min-nodes ", plan.nodes_min, " is above --nodes ", plan.nodes,
                 "; give at most that");
  if (plan.lease < kLeaseMin)
    return wrong("--lease is below ", kLeaseMin.count(), "ms; give at least that");
  if (plan.policy.window.count() > 0 &&
      (plan.restarts_max < 0 || plan.restarts_max > kWindowRestartsMax))
    return wrong("--restart-window needs --max-restarts N of at most ", kWindowRestartsMax);
  if (has("--mtbf")) plan.node_mtbf = request.mtbf * plan.nodes;
  if (!has("--checkpoint")) plan.checkpoint_every = BestCheckpointInterval(plan);
  return absl::OkStatus();
}

}  // namespace

std::vector<Flag> SimulateFlags() { return FlagsIn(kSimulateFlags); }

absl::StatusOr<std::variant<ShowText, SimulateRequest>> ParseSimulateRequest(
    const std::vector<std::string>& arguments) {
  const absl::StatusOr<ParsedFlags> parsed = ParseFlags(SimulateFlags(), arguments);
  if (!parsed.ok()) return parsed.status();
  if (parsed->help) return ShowText{Help()};
  SimulateRequest request;
  Reader reader(parsed->values);
  reader.Read(kSimulateFlags, request);
  absl::Status status = reader.status();
  if (status.ok()) status = Complete(*parsed, request);
  if (!status.ok()) return status;
  return request;
}

}  // namespace ddprun

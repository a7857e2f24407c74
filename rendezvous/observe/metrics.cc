// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Type = MetricSeries::Type;

constexpr std::array<std::pair<RunPhase, const char*>, 4> kPhases = {{
    {RunPhase::kForming, "forming"},
    {RunPhase::kSealed, "running"},
    {RunPhase::kBroken, "stopping"},
    {RunPhase::kClosed, "over"},
}};

constexpr std::array<std::pair<NodeState, const char*>, 7> kStates = {{
    {NodeState::kWaiting, "waiting"},
    {NodeState::kRunning, "running"},
    {NodeState::kSucceeded, "succeeded"},
    {NodeState::kStopping, "stopping"},
    {NodeState::kStopped, "stopped"},
    {NodeState::kSpare, "spare"},
    {NodeState::kAway, "away"},
}};

// The families of one scrape. Take() drops those without a sample.
class Families {
 public:
  // The reference stays valid.
  MetricSeries& Add(const char* name, const char* help, Type type = Type::kGauge) {
    return all_.emplace_back(MetricSeries{name, help, type, {}});
  }
  std::vector<MetricSeries> Take() {
    std::erase_if(all_, [](const MetricSeries& series) { return series.samples.empty(); });
    return {std::make_move_iterator(all_.begin()), std::make_move_iterator(all_.end())};
  }

 private:
  std::deque<MetricSeries> all_;
};

// For the runs whose workers report progress.
void AddProgress(const std::vector<RunStatus>& runs, Families& families) {
  MetricSeries& step = families.Add("ddprun_run_step", "Step that the slowest worker is in.");
  MetricSeries& epoch = families.Add("ddprun_run_epoch", "Epoch that the slowest worker is in.");
  MetricSeries& rate =
      families.Add("ddprun_run_rate", "Sum of the rates of all workers per second, by unit.");
  MetricSeries& age = families.Add("ddprun_run_progress_age_seconds",
                                   "Time since a worker last reported progress.");
  for (const RunStatus& run : runs) {
    if (!run.progress) continue;
    const std::vector<std::pair<std::string, std::string>> labels = {{"run", run.run_id}};
    const Progress& progress = *run.progress;
    if (progress.step >= 0) step.samples.push_back({labels, static_cast<double>(progress.step)});
    if (progress.epoch >= 0) epoch.samples.push_back({labels, static_cast<double>(progress.epoch)});
    if (progress.rate > 0) {
      rate.samples.push_back({{{"run", run.run_id}, {"unit", progress.rate_unit}}, progress.rate});
    }
    age.samples.push_back({labels, static_cast<double>(run.progress_age.count()) / 1000.0});
  }
}

// For the runs whose nodes have reported any.
void AddTime(const std::vector<RunStatus>& runs, Families& families) {
  MetricSeries& series =
      families.Add("ddprun_run_rank_seconds_total",
                   "Time of all ranks in all rounds, by what it was spent on.", Type::kCounter);
  for (const RunStatus& run : runs) {
    if (run.time.Sum().count() == 0) continue;
    ForEachClass(run.time, [&](TimeClass kind, double seconds) {
      series.samples.push_back({{{"run", run.run_id}, {"class", NameOf(kind)}}, seconds});
    });
  }
}

void AddRuns(const std::vector<RunStatus>& runs, Families& families) {
  const auto each = [&](const char* name, const char* help, auto value) {
    MetricSeries& series = families.Add(name, help);
    for (const RunStatus& run : runs) {
      series.samples.push_back({{{"run", run.run_id}}, static_cast<double>(value(run))});
    }
  };
  MetricSeries& phase = families.Add("ddprun_run_phase", "1 for the phase that the run is in.");
  for (const RunStatus& run : runs) {
    for (const auto& [value, name] : kPhases) {
      phase.samples.push_back(
          {{{"run", run.run_id}, {"phase", name}}, run.phase == value ? 1.0 : 0.0});
    }
  }
  each("ddprun_run_round", "Number of the round that forms, runs or broke.",
       [](const RunStatus& run) { return ToNumber(run.round); });
  each("ddprun_run_world_size", "Workers of the round; 0 while one forms.",
       [](const RunStatus& run) { return run.world_size; });
  each("ddprun_run_nodes_min", "Nodes that the run needs.",
       [](const RunStatus& run) { return run.nodes_min; });
  each("ddprun_run_nodes_max", "Nodes that the run takes.",
       [](const RunStatus& run) { return run.nodes_max; });
  AddProgress(runs, families);
  AddTime(runs, families);
  each("ddprun_run_restarts_max", "Restarts that the run may use.",
       [](const RunStatus& run) { return run.restarts_max; });
}

void AddNodes(const std::vector<RunStatus>& runs, Families& families) {
  MetricSeries& nodes = families.Add("ddprun_run_nodes", "Nodes of the run, by state.");
  MetricSeries& up =
      families.Add("ddprun_node_up", "1 if the node is connected, 0 while it is away.");
  MetricSeries& silence =
      families.Add("ddprun_node_silence_seconds", "Time since the node's last message.");
  MetricSeries& step =
      families.Add("ddprun_node_step", "Step that the node's slowest worker is in.");
  MetricSeries& age = families.Add("ddprun_node_progress_age_seconds",
                                   "Time since the progress of the node's workers changed.");
  MetricSeries& slow = families.Add("ddprun_rank_slowness",
                                    "Of a rank that is slower than its peers: how many times as "
                                    "long it needs for a step.");
  MetricSeries& damages =
      families.Add("ddprun_node_memory_damages",
                   "How often the memory of the node's workers was found to be damaged.");
  std::size_t shown = 0;
  for (const RunStatus& run : runs) {
    std::map<NodeState, int> counts;
    for (const NodeStatus& node : run.nodes) {
      ++counts[node.state];
      if (++shown > kMetricsNodesMax) continue;
      // A rank names the node over its restarts; a spare has none yet.
      const std::string rank = node.node_rank ? absl::StrCat(*node.node_rank) : node.node_id.value;
      const std::vector<std::pair<std::string, std::string>> labels = {
          {"run", run.run_id}, {"node", rank}, {"host", node.host}};
      up.samples.push_back({labels, node.state == NodeState::kAway ? 0.0 : 1.0});
      silence.samples.push_back({labels, static_cast<double>(node.silent.count()) / 1000.0});
      if (!node.progress) continue;
      age.samples.push_back({labels, static_cast<double>(node.progress_age.count()) / 1000.0});
      if (node.progress->slow_rank >= 0) {
        auto of_rank = labels;
        of_rank.emplace_back("rank", absl::StrCat(node.progress->slow_rank));
        slow.samples.push_back({std::move(of_rank), node.progress->slowness});
      }
      if (node.progress->damages >= 0)
        damages.samples.push_back({labels, static_cast<double>(node.progress->damages)});
      if (node.progress->step < 0) continue;
      step.samples.push_back({labels, static_cast<double>(node.progress->step)});
    }
    for (const auto& [state, name] : kStates) {
      nodes.samples.push_back(
          {{{"run", run.run_id}, {"state", name}}, static_cast<double>(counts[state])});
    }
  }
}

void AddCounters(const std::map<std::string, RunCounters>& counters, Families& families) {
  const auto each = [&](const char* name, const char* help, auto value) {
    MetricSeries& series = families.Add(name, help, Type::kCounter);
    for (const auto& [run, of_run] : counters) {
      series.samples.push_back({{{"run", run}}, static_cast<double>(value(of_run))});
    }
  };
  each("ddprun_run_rounds_total", "Rounds that were started.",
       [](const RunCounters& c) { return c.rounds; });
  each("ddprun_run_restarts_total", "Restarts after a failure.",
       [](const RunCounters& c) { return c.restarts; });
  each("ddprun_run_nodes_joined_total", "Nodes that have joined.",
       [](const RunCounters& c) { return c.nodes_joined; });
  each("ddprun_run_nodes_lost_total", "Nodes that were lost.",
       [](const RunCounters& c) { return c.nodes_lost; });
  each("ddprun_run_nodes_drained_total", "Nodes that were drained.",
       [](const RunCounters& c) { return c.nodes_drained; });
  each("ddprun_run_notices_total", "Notices that a machine will be taken away.",
       [](const RunCounters& c) { return c.notices; });
  each("ddprun_store_operations_total",
       "Operations of the store that nodes have sent to the service.",
       [](const RunCounters& c) { return c.store_operations; });
  each("ddprun_runs_finished_total", "Runs of that name that have ended.",
       [](const RunCounters& c) { return c.finished; });
  MetricSeries& failures = families.Add("ddprun_run_rounds_broken_total",
                                        "Rounds that broke, by cause.", Type::kCounter);
  for (const auto& [run, of_run] : counters) {
    for (const auto& [kind, count] : of_run.failures) {
      failures.samples.push_back({{{"run", run}, {"cause", kind}}, static_cast<double>(count)});
    }
  }
  MetricSeries& exits =
      families.Add("ddprun_run_worker_failures_total",
                   "Workers that broke a round, by exit code (128 + N: signal N).", Type::kCounter);
  for (const auto& [run, of_run] : counters) {
    for (const auto& [code, count] : of_run.worker_exits) {
      exits.samples.push_back(
          {{{"run", run}, {"code", absl::StrCat(code)}}, static_cast<double>(count)});
    }
  }
  MetricSeries& rendezvous = families.Add(
      "ddprun_run_rendezvous_seconds",
      "Time that rounds took to form, until their nodes received Start.", Type::kSummary);
  for (const auto& [run, of_run] : counters) {
    rendezvous.samples.push_back(
        {{{"run", run}}, of_run.rendezvous_seconds, of_run.rendezvous_count});
  }
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double OpenFiles() {
  std::error_code error;
  double count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

std::vector<MetricSeries> ServiceMetrics(const std::vector<RunStatus>& runs,
                                         const std::map<std::string, RunCounters>& counters) {
  Families families;
  AddRuns(runs, families);
  AddNodes(runs, families);
  AddCounters(counters, families);
  return families.Take();
}

std::vector<MetricSeries> ProcessMetrics() {
  Families families;
  families.Add("ddprun_build_info", "1, with the version of ddprun.").samples = {
      {{{"version", kSoftwareVersion}}, 1}};
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  families.Add("process_cpu_seconds_total", "User and system time of this process.", Type::kCounter)
      .samples = {{{}, Seconds(usage.ru_utime) + Seconds(usage.ru_stime)}};
  long pages = 0;
  long resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  families.Add("process_resident_memory_bytes", "Resident memory of this process.").samples = {
      {{}, static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE))}};
  families.Add("process_open_fds", "Files that this process has open.").samples = {
      {{}, OpenFiles()}};
  return families.Take();
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/restart_policy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr int kSignalBase = 128;
constexpr int kExitCodeMax = 255;

std::string Seconds(milliseconds time) {
  return absl::StrCat(std::chrono::duration<double>(time).count());
}

std::string CodeName(int code) {
  const char* name = code > kSignalBase ? sigabbrev_np(code - kSignalBase) : nullptr;
  return name == nullptr ? absl::StrCat(code) : absl::StrCat("SIG", name);
}

bool Contains(const std::vector<ExitCodeRange>& codes, int code) {
  return std::any_of(codes.begin(), codes.end(), [code](const ExitCodeRange& range) {
    return range.first <= code && code <= range.last;
  });
}

// A drained or interrupted node has not failed, and one that never joined has no name. Whose fault
// it is that a collective failed is not known.
bool IsHostsFailure(const Failure& cause) {
  switch (cause.kind) {
    case FailureKind::kNodeInterrupted:
    case FailureKind::kNodeDrained:
    case FailureKind::kNodeJoined:
    case FailureKind::kRunStopped:
    case FailureKind::kJoinTimeout:
    case FailureKind::kCollectiveFailed:
      return false;
    default:
      return !cause.host.empty();
  }
}

bool Counts(const RestartPolicy& policy, TimePoint time, TimePoint now) {
  return policy.window.count() == 0 || now - time < policy.window;
}

int CountIn(const std::vector<TimePoint>& times, const RestartPolicy& policy, TimePoint now) {
  return static_cast<int>(std::count_if(times.begin(), times.end(),
                                        [&](TimePoint time) { return Counts(policy, time, now); }));
}

void Forget(std::vector<TimePoint>& times, const RestartPolicy& policy, TimePoint now) {
  std::erase_if(times, [&](TimePoint time) { return !Counts(policy, time, now); });
}

std::string WhyNotWorthIt(const RestartPolicy& policy, const Failure& cause) {
  // A node that is lost or was told to leave says nothing about the program.
  if (!IsWorkersEnd(cause.kind)) return "";
  const int code = ToExitCode(cause);
  const std::string end = cause.kind == FailureKind::kWorkerSignaled
                              ? CodeName(code)
                              : absl::StrCat("exit code ", code);
  if (Contains(policy.never_codes, code)) {
    return absl::StrCat(end, " is not worth another try (--no-restart-exit-codes ",
                        ToText(policy.never_codes), ")");
  }
  if (!policy.only_codes.empty() && !Contains(policy.only_codes, code)) {
    return absl::StrCat(end, " is none that is worth another try (--restart-exit-codes ",
                        ToText(policy.only_codes), ")");
  }
  return "";
}

// Above the limit the host that failed longest ago is forgotten; hosts that are left out come last.
void MakeRoom(std::map<std::string, HostFailures>& hosts) {
  if (hosts.size() < kFailedHostsMax) return;
  const auto key = [](const HostFailures& host) {
    return std::pair(host.left_out.has_value(),
                     host.times.empty() ? TimePoint{} : host.times.back());
  };
  hosts.erase(std::min_element(hosts.begin(), hosts.end(), [&key](const auto& a, const auto& b) {
    return key(a.second) < key(b.second);
  }));
}

}  // namespace

bool IsWorkersEnd(FailureKind kind) {
  return kind == FailureKind::kWorkerExited || kind == FailureKind::kWorkerSignaled ||
         kind == FailureKind::kSpawnFailed || kind == FailureKind::kWorkerHung ||
         kind == FailureKind::kWorkerEndedEarly;
}

// ---- The budget

void Progressed(RestartHistory& history, std::int64_t step) {
  history.step = std::max(history.step, step);
}

void EndRound(RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
              Duration ran) {
  const bool further = history.step > history.step_before;
  const bool ran_long = policy.reset.count() > 0 && ran >= policy.reset;
  if (further || ran_long) {
    history.no_progress = 0;
  } else if (IsFailure(cause)) {
    ++history.no_progress;
  }
  // Progress alone does not restore the budget: --max-restarts holds unless another rule is set.
  if (ran_long || (further && policy.no_progress_max > 0)) {
    history.used = 0;
    history.times.clear();
  }
  history.step_before = std::max(history.step_before, history.step);
  history.step = RestartHistory::kNoStep;
}

int RestartsUsed(const RestartHistory& history, const RestartPolicy& policy, TimePoint now) {
  return policy.window.count() == 0 ? history.used : CountIn(history.times, policy, now);
}

std::optional<std::string> WhyNoRestart(const RestartHistory& history, const RestartPolicy& policy,
                                        int restarts_max, const Failure& cause, TimePoint now) {
  if (!IsFailure(cause)) return std::nullopt;
  if (restarts_max == 0) return "";
  if (std::string why = WhyNotWorthIt(policy, cause); !why.empty()) return why;
  if (policy.no_progress_max > 0 && history.no_progress >= policy.no_progress_max) {
    return absl::StrCat(history.no_progress,
                        history.no_progress == 1 ? " round has" : " rounds in a row have",
                        " made no progress (--no-progress-restarts ", policy.no_progress_max, ")");
  }
  if (RestartsUsed(history, policy, now) < restarts_max) return std::nullopt;
  if (policy.window.count() == 0) return "";
  return absl::StrCat("--max-restarts ", restarts_max, " are used up within ",
                      Seconds(policy.window), " s (--restart-window)");
}

void CountRestart(RestartHistory& history, const RestartPolicy& policy, TimePoint now) {
  if (policy.window.count() == 0) {
    ++history.used;
    return;
  }
  Forget(history.times, policy, now);
  history.times.push_back(now);
  history.used = static_cast<int>(history.times.size());
}

milliseconds RestartDelay(const RestartHistory& history, const RestartPolicy& policy) {
  milliseconds delay = policy.delay;
  for (int i = 1; i < history.used && delay.count() > 0 && delay < policy.delay_max; ++i) {
    delay = std::min(2 * delay, policy.delay_max);
  }
  return delay;
}

// ---- Hosts that fail repeatedly

bool WouldLeaveOut(const RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
                   TimePoint now) {
  if (policy.node_failures_max == 0 || !IsHostsFailure(cause)) return false;
  const auto it = history.hosts.find(cause.host);
  const int before = it == history.hosts.end() ? 0 : CountIn(it->second.times, policy, now);
  return before + 1 >= policy.node_failures_max;
}

bool CountFailure(RestartHistory& history, const RestartPolicy& policy, const Failure& cause,
                  TimePoint broke, TimePoint now) {
  if (policy.node_failures_max == 0 || !IsHostsFailure(cause)) return false;
  const bool last = WouldLeaveOut(history, policy, cause, broke);
  if (!history.hosts.contains(cause.host)) MakeRoom(history.hosts);
  HostFailures& host = history.hosts[cause.host];
  Forget(host.times, policy, broke);
  host.times.push_back(broke);
  host.exit_code = ToExitCode(cause);
  if (last) host.left_out = now;
  return last;
}

const HostFailures* FindLeftOut(const RestartHistory& history, const RestartPolicy& policy,
                                const std::string& host, TimePoint now) {
  const auto it = history.hosts.find(host);
  if (it == history.hosts.end() || !it->second.left_out) return nullptr;
  const bool over =
      policy.node_cooldown.count() > 0 && now >= *it->second.left_out + policy.node_cooldown;
  return over ? nullptr : &it->second;
}

void ForgiveLeftOut(RestartHistory& history, const std::string& host) {
  const auto it = history.hosts.find(host);
  if (it != history.hosts.end() && it->second.left_out) history.hosts.erase(it);
}

std::string LeftOutWords(const RestartPolicy& policy, const std::string& host) {
  return absl::StrCat("node ", host, " is left out after ", policy.node_failures_max,
                      policy.node_failures_max == 1 ? " failure" : " failures",
                      " (--node-failures-max ", policy.node_failures_max, ")");
}

// ---- As written on the command line

std::string ToText(const std::vector<ExitCodeRange>& codes) {
  if (codes.empty()) return "none";
  return absl::StrJoin(codes, ",", [](std::string* out, const ExitCodeRange& range) {
    absl::StrAppend(out, CodeName(range.first));
    if (range.last != range.first) absl::StrAppend(out, "-", CodeName(range.last));
  });
}

const char* ToText(OnJoin on_join) {
  switch (on_join) {
    case OnJoin::kGrow:
      return "grow";
    case OnJoin::kRestart:
      return "restart";
    case OnJoin::kStandby:
      return "standby";
  }
  return "";
}

std::vector<PolicyFlag> FlagsOf(const RestartPolicy& policy) {
  const auto time = [](milliseconds value) { return value.count() == 0 ? "" : Seconds(value); };
  const auto number = [](int value) { return value == 0 ? "" : absl::StrCat(value); };
  return {
      {"--restart-window", time(policy.window)},
      {"--restart-reset", time(policy.reset)},
      {"--no-progress-restarts", number(policy.no_progress_max)},
      {"--no-restart-exit-codes", ToText(policy.never_codes)},
      {"--restart-exit-codes", policy.only_codes.empty() ? "" : ToText(policy.only_codes)},
      {"--node-failures-max", number(policy.node_failures_max)},
      {"--node-cooldown", time(policy.node_cooldown)},
      {"--restart-delay", policy.delay_max.count() == 0 ? time(policy.delay)
                                                        : absl::StrCat(Seconds(policy.delay), ":",
                                                                       Seconds(policy.delay_max))},
      {"--on-join", ToText(policy.on_join)},
  };
}

std::optional<PolicyDifference> FindDifference(const RestartPolicy& a, const RestartPolicy& b) {
  const auto written = [](const PolicyFlag& one) {
    return one.value.empty() ? absl::StrCat("no ", one.flag)
                             : absl::StrCat(one.flag, " ", one.value);
  };
  const std::vector<PolicyFlag> of_a = FlagsOf(a);
  const std::vector<PolicyFlag> of_b = FlagsOf(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (of_a[i].value != of_b[i].value)
      return PolicyDifference{of_a[i].flag, written(of_a[i]), written(of_b[i])};
  }
  return std::nullopt;
}

absl::Status CheckPolicy(const RestartPolicy& policy, int restarts_max) {
  const auto check = [](const char* flag, auto value, auto max) {
    if (value >= decltype(max){0} && value <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(flag, " that is out of range"));
  };
  const milliseconds time_max = kRestartTimeMax;
  absl::Status status = check("a --restart-window", policy.window, time_max);
  status.Update(check("a --restart-reset", policy.reset, time_max));
  status.Update(check("--no-progress-restarts", policy.no_progress_max, 1'000'000'000));
  status.Update(check("--node-failures-max", policy.node_failures_max, kNodeFailuresMax));
  status.Update(check("a --node-cooldown", policy.node_cooldown, time_max));
  status.Update(check("a --restart-delay", policy.delay, milliseconds(kRestartDelayMax)));
  status.Update(
      check("an --on-join", static_cast<int>(policy.on_join), static_cast<int>(OnJoin::kStandby)));
  status.Update(check("a --restart-delay", policy.delay_max, milliseconds(kRestartDelayMax)));
  if (policy.window.count() > 0 && restarts_max > kWindowRestartsMax) {
    status.Update(absl::InvalidArgumentError(absl::StrCat("--max-restarts ", restarts_max,
                                                          ", and with --restart-window at most ",
                                                          kWindowRestartsMax, " are allowed")));
  }
  for (const auto* codes : {&policy.never_codes, &policy.only_codes}) {
    const bool good = std::all_of(codes->begin(), codes->end(), [](const ExitCodeRange& range) {
      return range.first >= 1 && range.first <= range.last && range.last <= kExitCodeMax;
    });
    if (!good || codes->size() > kExitCodeRangesMax) {
      status.Update(absl::InvalidArgumentError("exit codes that are none, or too many"));
    }
  }
  return status;
}

}  // namespace ddprun

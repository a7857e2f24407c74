// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_random.h"

namespace ddprun {
namespace {

constexpr std::uint64_t kKeepSeed = 0x6b656570;
constexpr std::uint64_t kOrderSeed = 0x6f726465;
constexpr std::uint64_t kNoticeSeed = 0x6e6f7469;

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kFaultsMax{60};
constexpr seconds kLastsMax{25};

class Planner {
 public:
  explicit Planner(std::uint64_t seed) : seed_(seed), random_(seed * 2 + 1) {}

  std::vector<ScenarioLine> Plan() {
    RunLine();
    const Duration end = random_.Between(seconds(5), kFaultsMax);
    StartLines(end);
    const std::uint64_t faults = random_.Below(9);
    for (std::uint64_t i = 0; i < faults; ++i) Fault(end);
    Notices(end);
    if (!hosted_) At(end, "start", {"service"});
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const ScenarioLine& a, const ScenarioLine& b) {
                       return a.at.value_or(Duration(0)) < b.at.value_or(Duration(0));
                     });
    ScenarioLine settle;
    settle.at = std::chrono::duration_cast<std::chrono::microseconds>(end);
    settle.verb = "settle";
    lines_.push_back(std::move(settle));
    return std::move(lines_);
  }

 private:
  ScenarioLine& Add(std::string verb, std::vector<std::string> words) {
    ScenarioLine& line = lines_.emplace_back();
    line.verb = std::move(verb);
    line.words = std::move(words);
    return line;
  }
  ScenarioLine& At(Duration at, std::string verb, std::vector<std::string> words) {
    ScenarioLine& line = Add(std::move(verb), std::move(words));
    // As text has it.
    line.at = std::chrono::duration_cast<std::chrono::microseconds>(at);
    return line;
  }
  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return choices.begin()[random_.Below(choices.size())];
  }
  std::string AnyNode() {
    return absl::StrCat("n", random_.Below(static_cast<std::uint64_t>(nodes_)));
  }
  std::string AnyProcess() { return !hosted_ && random_.Chance(0.3) ? "service" : AnyNode(); }

  void RunLine() {
    nodes_max_ = 1 + static_cast<int>(random_.Below(4));
    const int nodes_min =
        random_.Chance(0.5) ? nodes_max_ : 1 + static_cast<int>(random_.Below(nodes_max_));
    hosted_ = random_.Chance(0.25);
    const bool journal = !hosted_ && random_.Chance(0.7);
    ScenarioLine& run = Add("run", {});
    if (hosted_) run.words.push_back("hosted");
    if (journal) run.words.push_back("journal");
    run.values = {{"seed", absl::StrCat(seed_)},
                  {"nodes", absl::StrCat(nodes_min, ":", nodes_max_)},
                  {"restarts", absl::StrCat(random_.Below(4))},
                  {"lease", OneOf<std::string>({"0s", "1s", "3s", "10s", "10s", "30s"})},
                  {"last-call", OneOf<std::string>({"0s", "1s", "5s", "30s"})},
                  {"join-timeout", OneOf<std::string>({"5s", "20s", "60s"})},
                  {"term-timeout", OneOf<std::string>({"1s", "5s", "70s"})},
                  {"work", OneOf<std::string>({"10ms", "1s", "5s", "20s"})},
                  {"collective", OneOf<std::string>({"0s", "100ms", "20s"})},
                  {"hang", OneOf<std::string>({"0", "0.1"})},
                  {"snapshot-after", OneOf<std::string>({"5", "30", "100000"})}};
    if (random_.Chance(0.5)) {
      run.values["restarts"] = absl::StrCat(1 + random_.Below(6));
      run.values["flags"] = Flags();
    }
    // A source of its own, so that the other seeds mean what they meant.
    SimRandom keep(seed_ ^ kKeepSeed);
    if (keep.Chance(0.4)) {
      run.words.push_back("keep");
      constexpr const char* kOnJoin[] = {"", "", "--on-join standby ", "--on-join restart "};
      run.values["flags"] += kOnJoin[keep.Below(std::size(kOnJoin))];
      if (run.values["flags"].empty()) run.values.erase("flags");
    }
    SimRandom order(seed_ ^ kOrderSeed);
    constexpr const char* kOrders[] = {"join", "host", "topology"};
    run.values["rank-order"] = kOrders[order.Below(std::size(kOrders))];
    ScenarioLine& network = Add("network", {});
    network.values = {{"delay", OneOf<std::string>({"200us", "2ms", "100ms"})},
                      {"resend", OneOf<std::string>({"0", "0", "0.02"})},
                      {"break", OneOf<std::string>({"0", "0", "0.002", "0.02"})},
                      {"silence-min", OneOf<std::string>({"500ms", "10s"})},
                      {"silence", OneOf<std::string>({"2s", "15s"})}};
  }

  // What follows a failure. Those that are not worth a restart are among those of Fault().
  std::string Flags() {
    std::string flags;
    const auto add = [&](double chance, const char* flag,
                         std::initializer_list<const char*> values) {
      const char* value = OneOf(values);
      if (random_.Chance(chance)) absl::StrAppend(&flags, flag, " ", value, " ");
    };
    add(0.5, "--restart-window", {"2", "10", "60"});
    add(0.3, "--restart-reset", {"1", "5"});
    add(0.2, "--no-progress-restarts", {"1", "2", "4"});
    add(0.2, "--no-restart-exit-codes", {"1-30", "SIGKILL", "none"});
    add(0.1, "--restart-exit-codes", {"1-70", "SIGKILL,1"});
    add(0.3, "--restart-delay", {"0.1", "0.5:3", "20"});
    const bool leaves_out = random_.Chance(0.5);
    add(leaves_out ? 1 : 0, "--node-failures-max", {"1", "2", "3"});
    add(leaves_out ? 0.5 : 0, "--node-cooldown", {"1", "5", "30"});
    return flags;
  }

  void StartLines(Duration end) {
    if (!hosted_) At(Duration(0), "start", {"service"});
    // Some never come, and some are too many.
    nodes_ = std::max<int>(1, nodes_max_ - 1 + static_cast<int>(random_.Below(4)));
    const bool ranked = random_.Chance(0.4);
    SimRandom places(seed_ ^ kOrderSeed ^ 1);
    for (int i = 0; i < nodes_; ++i) {
      const bool late = random_.Chance(0.2);
      ScenarioLine& start =
          At(random_.Between(Duration(0), late ? end : Duration(milliseconds(500))), "start",
             {absl::StrCat("n", i)});
      start.values["workers"] = absl::StrCat(1 + random_.Below(3));
      if (ranked && i < nodes_max_) start.values["rank"] = absl::StrCat(i);
      if (random_.Chance(0.3)) start.values["skew"] = OneOf<std::string>({"15m", "10h"});
      if (random_.Chance(0.1)) start.values["forges"] = "1";
      start.values["topology"] = absl::StrCat("s", 8 + places.Below(3));
    }
  }

  // Machines that are taken away, or stay after all; a source of its own, as above.
  void Notices(Duration end) {
    SimRandom random(seed_ ^ kNoticeSeed);
    if (!random.Chance(0.3)) return;
    for (std::uint64_t i = 0; i < 1 + random.Below(3); ++i) {
      const std::string who = absl::StrCat("n", random.Below(static_cast<std::uint64_t>(nodes_)));
      const Duration at = random.Between(Duration(0), end);
      const Duration grace = random.Between(milliseconds(500), seconds(40));
      At(at, "notice", {who}).values["grace"] = absl::StrCat(grace / milliseconds(1), "ms");
      const Duration later = std::min(end, at + random.Between(Duration(1), grace));
      if (random.Chance(0.2)) At(later, "withdraw", {who});
      for (int node = 0; node < nodes_; ++node) {
        if (random.Chance(0.7)) At(later, "saved", {absl::StrCat("n", node)});
      }
      if (random.Chance(0.5)) At(std::min(end, at + grace), "crash-machine", {who});
    }
  }

  // Everything is over by `end`.
  void Fault(Duration end) {
    const Duration at = random_.Between(Duration(0), end);
    const Duration until = std::min(end, at + random_.Between(Duration(1), kLastsMax));
    switch (random_.Below(16)) {
      case 0:
      case 1:
      case 2: {
        const std::string who = AnyProcess();
        At(at, random_.Chance(0.3) ? "crash-machine" : "crash", {who});
        if (who == "service" || random_.Chance(0.7)) At(until, "start", {who});
        return;
      }
      case 3: {
        const std::string who = AnyProcess();
        At(at, "stop", {who});
        At(until, "continue", {who});
        return;
      }
      case 4:
      case 5: {
        const std::string who =
            hosted_ && nodes_ > 1
                ? absl::StrCat("n", 1 + random_.Below(static_cast<std::uint64_t>(nodes_ - 1)))
                : AnyNode();
        if (hosted_ && nodes_ == 1) return;
        std::vector<std::string> path = {who, "service"};
        if (random_.Chance(0.3)) std::swap(path[0], path[1]);
        if (random_.Chance(0.4)) path.push_back("one-way");
        At(at, "cut", path);
        At(until, "heal", path);
        return;
      }
      case 6:
        At(at, "break", {random_.Chance(0.2) ? "service" : AnyNode()});
        return;
      case 7:
      case 8: {
        if (random_.Chance(0.5)) {
          At(at, "progress", {AnyNode()}).values["step"] = absl::StrCat(random_.Below(20));
        }
        ScenarioLine& fail = At(at, "fail", {AnyNode()});
        if (random_.Chance(0.5)) {
          fail.values["code"] = absl::StrCat(1 + random_.Below(100));
        } else {
          fail.values["signal"] = "9";
        }
        return;
      }
      case 9:
        At(at, "interrupt", {AnyNode()});
        return;
      case 10: {
        // Everybody at once.
        const bool with_machine = random_.Chance(0.3);
        for (int i = 0; i < nodes_; ++i) {
          const std::string who = absl::StrCat("n", i);
          At(at, with_machine ? "crash-machine" : "crash", {who});
          At(until, "start", {who});
        }
        return;
      }
      case 11:
      case 12: {
        // The service changes while one cannot see it.
        if (hosted_) return;
        const std::string who = AnyNode();
        const Duration crash = at + random_.Between(Duration(0), milliseconds(500));
        const Duration start = crash + random_.Between(Duration(0), milliseconds(500));
        if (start >= end) return;
        At(at, "cut", {who, "service"});
        At(crash, "crash", {"service"});
        At(start, "start", {"service"});
        At(until, "heal", {who, "service"});
        return;
      }
      case 13: {
        if (random_.Chance(0.3)) {
          At(at, "ctl-stop",
             random_.Chance(0.5) ? std::vector<std::string>{"now"} : std::vector<std::string>{});
          return;
        }
        [[fallthrough]];
      }
      case 14: {
        std::vector<std::string> words = {AnyNode()};
        if (random_.Chance(0.5)) words.push_back("force");
        if (random_.Chance(0.2)) words.push_back("at-next-round");
        At(at, "drain", std::move(words));
        return;
      }
      default:
        // One that ended, or was never there.
        At(at, "start", {AnyNode()});
        return;
    }
  }

  const std::uint64_t seed_;
  SimRandom random_;
  std::vector<ScenarioLine> lines_;
  int nodes_max_ = 1;
  int nodes_ = 1;
  bool hosted_ = false;
};

}  // namespace

std::vector<ScenarioLine> PlanOf(std::uint64_t seed) { return Planner(seed).Plan(); }

std::string ToText(const std::vector<ScenarioLine>& plan) {
  std::string text;
  for (const ScenarioLine& line : plan) absl::StrAppend(&text, ToText(line), "\n");
  return text;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "ddprun/detail/collectives.h"
#include "ddprun/detail/world_access.h"
#include "proto/progress_message.h"
#include "rendezvous/values/session_types.h"
#include "worker/library/base/host_name.h"
#include "worker/train/metrics/straggler_rule.h"
#include "worker/train/observers/make_observers.h"

namespace ddprun {
namespace {

// To get the name of the slow rank's host, which that rank stores as soon as it is found.
constexpr std::chrono::seconds kHostTimeout{1};

// How long this thread was ready to run and had no CPU, which other processes of a busy machine
// cause: it changes within moments, and says nothing of the machine. 0 where the kernel does not
// tell.
class CpuWait {
 public:
  CpuWait() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~CpuWait() {
    if (file_ >= 0) close(file_);
  }
  CpuWait(const CpuWait&) = delete;
  CpuWait& operator=(const CpuWait&) = delete;

  std::chrono::nanoseconds Now() const {
    char text[96] = "";
    if (file_ < 0 || pread(file_, text, sizeof text - 1, 0) <= 0) return {};
    char* end = nullptr;
    std::strtoull(text, &end, 10);  // the time for which it ran
    return std::chrono::nanoseconds(std::strtoull(end, nullptr, 10));
  }

 private:
  const int file_;
};

// The time of one rank's step without waiting, neither for the others' gradients nor for a CPU.
// What a step waits for elsewhere (synchronized batch normalization) cannot be told from its own
// time.
class OwnTime {
 public:
  struct Times {
    std::chrono::nanoseconds own{0};
    std::chrono::nanoseconds waited{0};  // for a CPU
  };

  void Enter(StepSection section) {
    const bool runs = IsWithinStep(section) && section != StepSection::kGradients;
    if (runs == runs_) return;
    // The wait for a CPU is read before the time at an end and after it at a begin: a thread that
    // loses its CPU in between makes the step longer, which its fastest one is not, never shorter.
    const auto waited = cpu_wait_.Now();
    const auto now = Clock::now();
    if (runs_) {
      last_.waited += waited - waited_;
      last_.own += now - since_ - (waited - waited_);
    }
    runs_ = runs;
    if (!runs) return;
    since_ = now;
    waited_ = cpu_wait_.Now();
  }

  // Since the last call.
  Times Take() { return std::exchange(last_, {}); }

 private:
  using Clock = std::chrono::steady_clock;

  const CpuWait cpu_wait_;
  bool runs_ = false;
  Clock::time_point since_{};
  std::chrono::nanoseconds waited_{0};
  Times last_;
};

// Names a rank that is slower than its peers. The ranks exchange their fastest steps beside the
// training, and no rank waits for it: what was begun some steps before is done.
class StragglerObserver : public Observer {
 public:
  // All must outlive the observer.
  StragglerObserver(const Config& config, World& world, Console& console)
      : world_(world), console_(console), factor_(config.straggler_factor) {}

  void OnSection(StepSection section) override { own_time_.Enter(section); }

  void OnStepEnd(const TrainingState& state, const StepResult&) override {
    own_time_.Enter(StepSection::kOther);
    using std::chrono::microseconds;
    const OwnTime::Times step = own_time_.Take();
    steps_.Add(std::chrono::duration_cast<microseconds>(step.own),
               std::chrono::duration_cast<microseconds>(step.waited));
    Exchange(state.position().step);
  }

 private:
  // At the same steps on all ranks, also if some have come into the world later.
  void Exchange(std::int64_t step) {
    if (world_.group() != group_) {
      group_ = world_.group();
      work_ = nullptr;
      rule_.emplace(factor_);
      next_ = 0;
    }
    if (step < next_) return;
    if (work_) Judge();
    BeginExchange();
    next_ = step + rule_->exchange_steps();
  }

  void BeginExchange() {
    const FastestSteps fastest = steps_.Fastest();
    all_ = at::zeros({world_.size() * 2}, at::kLong);
    at::Tensor own = at::tensor({fastest.recent, fastest.lasting}, at::kLong);
    // It may end after --profile has: the profiler's record of it would be gone by then.
    const at::DisableRecordFunctionGuard not_profiled;
    std::vector<std::vector<at::Tensor>> by_rank = {all_.chunk(world_.size())};
    std::vector<at::Tensor> owns = {own};
    work_ = world_.group()->allgather(by_rank, owns);
  }

  void Judge() {
    try {
      Await(world_, std::exchange(work_, nullptr));
    } catch (const c10::Error&) {
      return;  // a rank has ended, which the training notices by itself
    }
    const std::optional<Straggler> before = rule_->slow();
    const auto* const numbers = all_.const_data_ptr<std::int64_t>();
    std::vector<FastestSteps> fastest;
    for (std::int64_t i = 0; i < all_.numel(); i += 2)
      fastest.push_back({.recent = numbers[i], .lasting = numbers[i + 1]});
    rule_->Take(fastest);
    const std::optional<Straggler>& now = rule_->slow();
    if (before == now) return;
    const int was = before ? before->rank : -1;
    const int is = now ? now->rank : -1;
    if (world_.rank() == was || world_.rank() == is) {
      ProgressMessage message;
      message.slow = world_.rank() == is ? now->factor : 0;
      WorldAccess::Report(world_, message);
    }
    if (was == is) return;
    if (world_.rank() == is) world_.store()->set(HostKey(is), HostName());
    if (world_.rank() != 0) return;
    if (is < 0) {
      console_.Line("rank " + std::to_string(was) + " is as fast as its peers again");
    } else {
      console_.Line(SlowRankText(is, HostOf(is), now->factor) + "; look at that machine");
    }
  }

  static std::string HostKey(int rank) { return "straggler/host/" + std::to_string(rank); }

  std::string HostOf(int rank) {
    try {
      const std::string key = HostKey(rank);
      world_.store()->wait({key}, kHostTimeout);
      return world_.store()->get_to_str(key);
    } catch (const std::exception&) {
      return "unknown";
    }
  }

  World& world_;
  Console& console_;
  const double factor_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // that of the exchanges
  std::optional<StragglerRule> rule_;
  std::int64_t next_ = 0;  // the step at whose end the next exchange begins
  OwnSteps steps_;
  OwnTime own_time_;
  at::Tensor all_;  // recent and lasting of each rank, once work_ is done
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

std::unique_ptr<Observer> MakeStragglerObserver(const Config& config, World& world,
                                                Console& console) {
  return std::make_unique<StragglerObserver>(config, world, console);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/resource.h>
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

#include "worker/base/host_name.h"
#include "worker/base/text.h"
#include "worker/metrics/straggler_rule.h"
#include "worker/observers/make_observers.h"

namespace ddprun {
namespace {

// To get the name of the slow rank's host, which that rank stores as soon as it is found.
constexpr std::chrono::seconds kHostTimeout{1};

// Of steps that count as uninterrupted, over some of them. Kernel threads interrupt more rarely,
// another busy process of that CPU far more often: then a rank with several threads waits in ways
// that cannot be told from its work, and one with a single thread finds its caches empty.
constexpr std::chrono::milliseconds kBetweenInterruptions{20};

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

// Whether other processes took CPUs from any thread of this process.
class Interruptions {
 public:
  // Since the last call, by the CPU time that was used: one that waits for most of the time is
  // interrupted rarely.
  bool TakeAreRare() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto now = TimeOf(usage.ru_utime) + TimeOf(usage.ru_stime);
    const auto time = now - std::exchange(used_, now);
    const auto count = usage.ru_nivcsw - std::exchange(count_, usage.ru_nivcsw);
    allowed_ =
        std::min(1.0, allowed_ + std::chrono::duration<double>(time) / kBetweenInterruptions);
    allowed_ -= static_cast<double>(count);
    if (allowed_ >= 0) return true;
    allowed_ = 0;
    return false;
  }

 private:
  static std::chrono::microseconds TimeOf(const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  }

  std::chrono::microseconds used_{0};
  double allowed_ = 1;  // interruptions
  decltype(rusage::ru_nivcsw) count_ = 0;
};

// The time of one rank's step without waiting, neither for the others' gradients nor for a CPU.
// What a step waits for elsewhere (synchronized batch normalization) cannot be told from its own
// time.
class OwnTime {
 public:
  void Enter(StepSection section) {
    const bool runs = IsWithinStep(section) && section != StepSection::kGradients;
    if (runs == runs_) return;
    // The wait for a CPU is read before the time at an end and after it at a begin: a thread that
    // loses its CPU in between makes the step longer, which its fastest one is not, never shorter.
    const auto waited = cpu_wait_.Now();
    const auto now = Clock::now();
    if (runs_) time_ += now - since_ - (waited - waited_);
    runs_ = runs;
    if (!runs) return;
    since_ = now;
    waited_ = cpu_wait_.Now();
  }

  // Since the last call.
  std::chrono::nanoseconds Take() { return std::exchange(time_, {}); }

 private:
  using Clock = std::chrono::steady_clock;

  const CpuWait cpu_wait_;
  bool runs_ = false;
  Clock::time_point since_{};
  std::chrono::nanoseconds waited_{0};
  std::chrono::nanoseconds time_{0};
};

// Names a rank that is slower than its peers. The ranks exchange their fastest steps beside the
// training, and no rank waits for it: what was begun some steps before is done.
class StragglerObserver : public Observer {
 public:
  // All must outlive the observer.
  StragglerObserver(const Config& config, World& world, Console& console, ProgressSender& progress)
      : world_(world), console_(console), progress_(progress), factor_(config.straggler_factor) {}

  void OnSection(StepSection section) override { own_time_.Enter(section); }

  void OnStepEnd(const TrainingState& state, const StepEvent&) override {
    own_time_.Enter(StepSection::kOther);
    const auto own = std::chrono::duration_cast<std::chrono::microseconds>(own_time_.Take());
    fastest_.Add(own, /*interrupted=*/!interruptions_.TakeAreRare());
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
    all_ = at::zeros({world_.size()}, at::kLong);
    at::Tensor own = at::full({1}, fastest_.Get(), at::kLong);
    work_ = world_.group()->_allgather_base(all_, own);
  }

  void Judge() {
    try {
      std::exchange(work_, nullptr)->wait();
    } catch (const c10::Error&) {
      return;  // a rank has ended, which the training notices by itself
    }
    const std::optional<Straggler> before = rule_->slow();
    const auto* const numbers = all_.const_data_ptr<std::int64_t>();
    rule_->Take({numbers, numbers + all_.numel()});
    const std::optional<Straggler>& now = rule_->slow();
    if (before == now) return;
    const int was = before ? before->rank : -1;
    const int is = now ? now->rank : -1;
    if (world_.rank() == was || world_.rank() == is) {
      ProgressMessage message;
      message.slow = world_.rank() == is ? now->factor : 0;
      progress_.Send(message);
    }
    if (was == is) return;
    if (world_.rank() == is) world_.store()->set(HostKey(is), HostName());
    if (world_.rank() != 0) return;
    if (is < 0) {
      console_.Line("rank " + std::to_string(was) + " is as fast as its peers again");
    } else {
      console_.Line("rank " + std::to_string(is) + HostOf(is) + " needs " + Fixed(now->factor, 1) +
                    " times as long for a step as its peers; look at that machine");
    }
  }

  static std::string HostKey(int rank) { return "straggler/host/" + std::to_string(rank); }

  std::string HostOf(int rank) {
    try {
      const std::string key = HostKey(rank);
      world_.store()->wait({key}, kHostTimeout);
      return " on host " + world_.store()->get_to_str(key);
    } catch (const std::exception&) {
      return "";
    }
  }

  World& world_;
  Console& console_;
  ProgressSender& progress_;
  const double factor_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // that of the exchanges
  std::optional<StragglerRule> rule_;
  std::int64_t next_ = 0;  // the step at whose end the next exchange begins
  Interruptions interruptions_;
  FastestStep fastest_;
  OwnTime own_time_;
  at::Tensor all_;  // each rank's fastest step, once work_ is done
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

std::unique_ptr<Observer> MakeStragglerObserver(const Config& config, World& world,
                                                Console& console, ProgressSender& progress) {
  return std::make_unique<StragglerObserver>(config, world, console, progress);
}

}  // namespace ddprun

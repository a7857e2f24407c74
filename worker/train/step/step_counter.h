// SPDX-License-Identifier: Apache-2.0
// Counts the steps of this run, their images and their time: the one source of every speed that is
// shown, recorded or sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "worker/train/metrics/step_clock.h"
#include "worker/train/step/observer.h"

namespace ddprun {

class StepCounter {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // `clock` must outlive the counter.
  explicit StepCounter(const StepClock& clock) : clock_(clock) { Begin(); }

  // The first step begins now; what was before was set-up.
  void Begin() {
    begin_ = Clock::now();
    left_out_ = {};
    set_up_ = clock_.totals();
  }

  // A step was made.
  void Add(const StepResult& result) {
    ++now_.steps;
    now_.images += result.samples;
    now_.own_images += result.own_samples;
    now_.data_wait_seconds += result.data_wait_seconds;
  }

  // No step was made for so long (an evaluation): speeds are those of training.
  void LeaveOut(Clock::duration time) { left_out_ += time; }

  // The loss of a step was read from the device: the latest, from here on.
  void Read(double loss) { loss_ = loss; }
  double loss() const { return loss_.value_or(0); }
  // Absent: none was read yet.
  std::optional<double> last_loss() const { return loss_; }

  // All since Begin(); the difference of two of them is what lies between.
  struct Counts {
    std::int64_t steps = 0;
    std::int64_t images = 0;      // of all ranks
    std::int64_t own_images = 0;  // of this rank
    double data_wait_seconds = 0;
    Clock::duration time{};
    SectionTimes sections;

    double seconds() const { return Seconds(time).count(); }
    double images_per_second() const { return static_cast<double>(images) / seconds(); }
    double own_images_per_second() const { return static_cast<double>(own_images) / seconds(); }

    friend Counts operator-(const Counts& later, const Counts& earlier) {
      return {.steps = later.steps - earlier.steps,
              .images = later.images - earlier.images,
              .own_images = later.own_images - earlier.own_images,
              .data_wait_seconds = later.data_wait_seconds - earlier.data_wait_seconds,
              .time = later.time - earlier.time,
              .sections = later.sections - earlier.sections};
    }
  };
  Counts Now() const {
    Counts counts = now_;
    counts.time = Clock::now() - begin_ - left_out_;
    counts.sections = clock_.totals() - set_up_;
    return counts;
  }

  // The steps made since Now() was `then` do not count, nor does their time.
  void GoBackTo(const Counts& then) {
    const Counts lost = Now() - then;
    LeaveOut(lost.time);
    set_up_ = clock_.totals() - then.sections;
    now_ = then;
  }

 private:
  const StepClock& clock_;
  Clock::time_point begin_;
  Clock::duration left_out_{};
  SectionTimes set_up_;
  Counts now_;
  std::optional<double> loss_;
};

}  // namespace ddprun

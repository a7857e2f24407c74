// SPDX-License-Identifier: Apache-2.0
// The console output of a training: lines of every rank, a progress bar of rank 0 on a terminal,
// and a table at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

// The bar is drawn at most this often, to spare terminals over a network.
inline constexpr std::chrono::milliseconds kBarInterval{200};

struct StepReport {
  std::int64_t epoch = 0;  // counted from 1, as the batch
  std::int64_t epochs = 0;
  std::int64_t batch = 0;
  std::int64_t batches = 0;  // in this epoch
  double loss = 0;           // of this batch on this rank
  double learning_rate = 0;
  double images_per_second = 0;  // of this rank
};

// `epoch 1/2 batch 100/469 loss 0.5321 lr 0.0080 img/s 412`
std::string ToLine(const StepReport& report);

struct BarReport {
  std::int64_t epoch = 0;  // counted from 1
  std::int64_t epochs = 0;
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0;                 // the latest
  std::optional<double> accuracy;  // of the latest evaluation, a share
  double images_per_second = 0;    // of all ranks
  double data_wait = 0;            // share of the time that steps wait for data
  std::chrono::duration<double> left{};
};

// Shown from this share on: more --loader-threads would help.
inline constexpr double kDataWaitShown = 0.05;

// `[=====>     ]  45% ETA 0:35 epoch 2/4 step 210/469 loss 0.5321 812 img/s acc 91.2%`, and where
// it is much `waiting for data 12%`. In `columns` of a terminal the bar is shorter, and the end is
// left out; 0: as long as it is.
std::string ToBar(const BarReport& report, std::size_t columns = 0);

// Names in one column, values in the next.
std::string ToTable(const std::vector<std::pair<std::string, std::string>>& rows);

// Rows of as many columns each, the first aligned to the left and the others to the right.
std::string ToColumns(const std::vector<std::vector<std::string>>& rows);

class Console {
 public:
  struct Options {
    std::FILE* out = stdout;
    bool bar = false;
    // Set where the output goes straight to a terminal: the bar is erased before the next line. For
    // its workers the agent erases it.
    bool erase_bar = false;
  };

  explicit Console(Options options) : options_(options) {}
  ~Console();

  void Line(const std::string& text);
  // A line that the next output replaces; nothing without a bar, nor while the terminal takes none
  // (Ctrl-S).
  void Bar(const std::string& text);
  // How long it may be; 0: whoever shows it cuts it.
  std::size_t BarColumns() const;
  // Whether it is time for another one.
  bool BarIsDue(std::chrono::steady_clock::time_point now) const;

 private:
  void Write(const std::string& text);

  const Options options_;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point last_bar_{};
};

// Before anything but the console writes to the terminal: erases the bar, if one is there. A signal
// that ends the program does it, too.
void EraseBar();

}  // namespace ddprun

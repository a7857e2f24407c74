// SPDX-License-Identifier: Apache-2.0
// Writes a run's metrics to disk: metrics.jsonl (one object per line) and TensorBoard's event
// files, both in the output folder. The training only adds a record to a bounded queue; a thread
// writes it. A disk error is reported once and never stops a training.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "worker/train/metrics/append_file.h"
#include "worker/train/metrics/event_file.h"

namespace ddprun {

inline constexpr char kMetricsFileName[] = "metrics.jsonl";
inline constexpr char kFormerMetricsFileName[] = "metrics.previous.jsonl";
inline constexpr char kTensorboardFolder[] = "tensorboard";

class MetricsWriter {
 public:
  // A crash loses at most what was measured in this time.
  static constexpr std::chrono::milliseconds kFlushInterval{2000};
  // Records that wait for the thread; more are dropped.
  static constexpr std::size_t kQueueRecords = 4096;

  struct Options {
    std::string directory;  // is there already
    bool jsonl = true;
    bool tensorboard = false;
    // Steps that the run has behind it, which is resumed. What the files hold of later ones was
    // lost with the interruption and is superseded. With 0 a metrics.jsonl that is there becomes
    // metrics.previous.jsonl.
    std::int64_t steps_done = 0;
    // The metrics.jsonl that is there is this run's own, also with 0 steps: it goes back.
    bool goes_back = false;
    // Called on any thread, at most once, with a sentence; the run goes on.
    std::function<void(const std::string&)> warn;
    std::chrono::milliseconds flush_interval = kFlushInterval;
  };

  explicit MetricsWriter(Options options);
  ~MetricsWriter();  // writes what is left
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // What was measured after `step` steps, with the time of now. Does not wait for the disk. A later
  // record must not be of an earlier step.
  void Write(std::int64_t step, std::vector<Scalar> scalars);

 private:
  struct Record {
    std::int64_t step = 0;
    double time = 0;  // seconds since 1970
    std::vector<Scalar> scalars;
  };

  void Open();
  void WriteRecords();
  void Encode(const Record& record);
  void Check(int error, const std::string& path);

  const Options options_;
  // Used by the thread alone, once it runs.
  AppendFile jsonl_;
  AppendFile events_;
  bool warned_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Record> queue_;
  bool ending_ = false;
  std::thread thread_;
};

// `{"step":50,"time":1763000000.25,"loss/train":0.53}` and an end of line; a value that is not
// finite is null, since JSON has no other word for it.
std::string JsonLine(std::int64_t step, double time, const std::vector<Scalar>& scalars);

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while training continues. Parameters and optimizer state do not change between
// two optimizer steps, so a thread copies them while forward and backward run. Code that is about
// to change them waits until they are copied; that is the only time that a save costs the training.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/library/checkpoint/checkpoint_file.h"
#include "worker/library/checkpoint/checkpoint_folder.h"

namespace ddprun {

class CheckpointWriter {
 public:
  struct Options {
    std::string folder;
    std::string training;     // see checkpoint_folder.h
    std::string loaded_from;  // the checkpoint that is known to be good; may be empty
    std::int64_t keep = 2;
  };

  // How a save ended.
  struct Report {
    std::int64_t step = 0;
    std::string path;
    bool best = false;  // it is best.safetensors, too
    std::string error;  // one sentence; empty if the checkpoint is on the disk
    std::size_t bytes = 0;
    std::chrono::duration<double> copying{};
    std::chrono::duration<double> writing{};
  };

  explicit CheckpointWriter(Options options);
  // Waits for the save that is under way.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins to save and returns at once. What forward or anything else but the optimizer changes
  // (batch norm's buffers) must be given as a copy; all other tensors must stay as they are until
  // WaitUntilCopied(). False, and nothing is done, while the save before is under way: the caller
  // tries again after the next step. That is counted in put_off(). `best`: the checkpoint becomes
  // best.safetensors as well, before it has its own name: no checkpoint of a step speaks of a best
  // one that is not there.
  bool Save(std::int64_t step, Snapshot snapshot, bool best = false);

  // Before the tensors of a Save() change. Returns how long it had to wait: 0 if there was nothing
  // to wait for.
  std::chrono::duration<double> WaitUntilCopied();

  // The same with a limit: false if they were not copied in that time.
  bool WaitUntilCopied(std::chrono::milliseconds limit);

  // Until the save under way has ended. False if it had not in that time.
  bool WaitUntilSaved(std::chrono::milliseconds limit);

  // Reports on the saves that have ended since the last call.
  std::vector<Report> TakeReports();

  std::int64_t put_off() const { return put_off_; }

 private:
  struct Order {
    std::int64_t step = 0;
    Snapshot snapshot;
    bool best = false;
  };

  void Run();
  Report Carry(Order order);
  void Write(const std::string& path, bool best);
  void WriteImage(const std::string& path);

  const Options options_;
  CheckpointRetention retention_;  // the thread's own, as the next
  CheckpointImage image_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Order> order_;
  bool copying_ = false;
  bool saving_ = false;
  bool ending_ = false;
  std::vector<Report> reports_;
  std::atomic<bool> any_report_ = false;  // asked after each step

  std::int64_t put_off_ = 0;  // the caller's
  std::thread thread_;
};

}  // namespace ddprun

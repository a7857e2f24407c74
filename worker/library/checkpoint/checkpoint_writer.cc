// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/checkpoint_writer.h"

#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "proto/output_file.h"
#include "worker/library/base/first_line.h"
#include "worker/library/files/atomic_file.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CheckpointWriter::CheckpointWriter(Options options)
    : options_(std::move(options)), retention_(options_.folder, options_.training, options_.keep) {
  if (!options_.loaded_from.empty()) retention_.IsGood(options_.loaded_from);
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool CheckpointWriter::Save(std::int64_t step, Snapshot snapshot, bool best) {
  {
    const std::lock_guard lock(mutex_);
    if (saving_) {
      ++put_off_;
      return false;
    }
    order_ = Order{step, std::move(snapshot), best};
    copying_ = saving_ = true;
  }
  changed_.notify_all();
  return true;
}

std::chrono::duration<double> CheckpointWriter::WaitUntilCopied() {
  std::unique_lock lock(mutex_);
  if (!copying_) return {};
  const Clock::time_point begin = Clock::now();
  changed_.wait(lock, [this] { return !copying_; });
  return Clock::now() - begin;
}

bool CheckpointWriter::WaitUntilCopied(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return !copying_; });
}

bool CheckpointWriter::WaitUntilSaved(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return !saving_; });
}

std::vector<CheckpointWriter::Report> CheckpointWriter::TakeReports() {
  if (!any_report_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex_);
  any_report_ = false;
  return std::exchange(reports_, {});
}

void CheckpointWriter::Run() {
  // A file at its size limit is then an error, as a full disk is, and not the end of the process.
  const HeldBackSignal no_sigxfsz(SIGXFSZ);
  for (;;) {
    Order order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return order_ || ending_; });
      if (!order_) return;
      order = *std::exchange(order_, std::nullopt);
    }
    Report report = Carry(std::move(order));
    const std::lock_guard lock(mutex_);
    copying_ = saving_ = false;
    reports_.push_back(std::move(report));
    any_report_ = true;
    changed_.notify_all();
  }
}

CheckpointWriter::Report CheckpointWriter::Carry(Order order) {
  Report report{.step = order.step,
                .path = std::filesystem::path(options_.folder) / CheckpointName(order.step),
                .best = order.best};
  const Clock::time_point begin = Clock::now();
  try {
    image_.Fill(order.snapshot);
    order.snapshot = {};
    const Clock::time_point copied = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      copying_ = false;
    }
    changed_.notify_all();
    report.copying = copied - begin;
    if (const std::string tensor = image_.NotFinite(); !tensor.empty())
      throw std::runtime_error(tensor + " has values that are not finite; older ones are kept");
    Write(report.path, order.best);
    report.writing = Clock::now() - copied;
    report.bytes = image_.size();
  } catch (const std::exception& error) {
    report.error =
        "checkpoint of step " + std::to_string(order.step) + " is not saved: " + FirstLine(error);
  }
  return report;
}

void CheckpointWriter::WriteImage(const std::string& path) {
  AtomicFile file(path);
  file.Write(image_.bytes(), image_.size());
  file.Commit();
}

void CheckpointWriter::Write(const std::string& path, bool best) {
  retention_.RemoveStaleTemporaries();
  const std::string best_path = std::filesystem::path(options_.folder) / kBestCheckpoint;
  if (best) WriteImage(best_path);
  if (!best || !LinkFile(best_path, path)) WriteImage(path);
  // Only now: until here what there was before was the newest.
  retention_.IsGood(path);
  retention_.Apply();
}

}  // namespace ddprun

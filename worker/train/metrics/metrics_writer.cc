// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/metrics_writer.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "proto/json_text.h"
#include "worker/library/base/host_name.h"
#include "worker/train/metrics/metric_series.h"

namespace ddprun {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// How much of the file stays, and the rest out of the way.
std::uint64_t KeepForResume(const std::string& path, std::int64_t steps_done, bool goes_back) {
  if (steps_done > 0 || goes_back) return BytesUpToStep(path, steps_done);
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) > 0 && !ignored) {
    const std::filesystem::path former =
        std::filesystem::path(path).replace_filename(kFormerMetricsFileName);
    std::filesystem::rename(path, former, ignored);
  }
  return 0;
}

}  // namespace

std::string JsonLine(std::int64_t step, double time, const std::vector<Scalar>& scalars) {
  nlohmann::ordered_json line;
  line["step"] = step;
  line["time"] = time;
  for (const Scalar& scalar : scalars) line[scalar.name] = scalar.value;
  return JsonText(line) + "\n";
}

MetricsWriter::MetricsWriter(Options options) : options_(std::move(options)) {
  if (!options_.jsonl && !options_.tensorboard) return;
  thread_ = std::thread([this] {
    Open();
    WriteRecords();
  });
}

MetricsWriter::~MetricsWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MetricsWriter::Write(std::int64_t step, std::vector<Scalar> scalars) {
  if (!thread_.joinable()) return;
  const double now = Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.size() >= kQueueRecords) return;
  queue_.push_back({step, now, std::move(scalars)});
  if (queue_.size() == kQueueRecords / 2) changed_.notify_one();
}

void MetricsWriter::Open() {
  const std::filesystem::path folder(options_.directory);
  if (options_.jsonl) {
    const std::string path = folder / kMetricsFileName;
    Check(jsonl_.Open(path, KeepForResume(path, options_.steps_done, options_.goes_back)), path);
  }
  if (!options_.tensorboard) return;
  const std::string events = folder / kTensorboardFolder;
  std::error_code error;
  std::filesystem::create_directories(events, error);
  if (error) return Check(error.value(), events);
  const double now = Now();
  const std::string path =
      events + "/" +
      EventFileName(NamesIn(events), static_cast<std::int64_t>(now), HostName(), getpid());
  Check(events_.Open(path, 0), path);
  events_.Add(TfRecord(FileVersionEvent(now)));
  // The first record of this run is of the next step at the earliest.
  events_.Add(TfRecord(StartEvent(options_.steps_done + 1, now)));
}

void MetricsWriter::WriteRecords() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (bool last = false; !last;) {
    changed_.wait_for(lock, options_.flush_interval,
                      [&] { return ending_ || queue_.size() >= kQueueRecords / 2; });
    last = ending_;
    const std::vector<Record> records = std::exchange(queue_, {});
    lock.unlock();
    for (const Record& record : records) Encode(record);
    Check(jsonl_.Flush(), jsonl_.path());
    Check(events_.Flush(), events_.path());
    lock.lock();
  }
}

void MetricsWriter::Encode(const Record& record) {
  jsonl_.Add(JsonLine(record.step, record.time, record.scalars));
  events_.Add(TfRecord(ScalarsEvent(record.step, record.time, record.scalars)));
}

void MetricsWriter::Check(int error, const std::string& path) {
  if (error == 0 || std::exchange(warned_, true) || !options_.warn) return;
  const std::string fact =
      error == ESPIPE
          ? "it is not a regular file; training goes on without it: remove it before the next run"
          : std::string(std::strerror(error)) +
                "; training goes on, and what is measured is kept for a while: make room there";
  options_.warn("metrics cannot be written to " + path + ": " + fact);
}

}  // namespace ddprun

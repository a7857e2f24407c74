// SPDX-License-Identifier: Apache-2.0
#include "worker/loader.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

namespace ddprun {

Loader::Loader(const BatchWriter& writer, const at::Tensor& labels,
               std::vector<std::int64_t> indices, LoaderOptions options)
    : writer_(writer),
      labels_(labels),
      indices_(std::move(indices)),
      options_(options),
      thread_([this] { Run(); }) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Batch> Loader::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || finished_; });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

void Loader::Run() {
  std::exception_ptr error;
  try {
    for (std::size_t first = 0; first < indices_.size();
         first += static_cast<std::size_t>(options_.batch_size)) {
      Batch batch = Make(first);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ready_.size() < kBatchesAheadMax || stopping_; });
      if (stopping_) return;
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  error_ = error;
  finished_ = true;
  changed_.notify_all();
}

Batch Loader::Make(std::size_t first) const {
  const auto size = static_cast<std::int64_t>(
      std::min(indices_.size() - first, static_cast<std::size_t>(options_.batch_size)));
  const auto format =
      options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto floats =
      at::TensorOptions(at::kFloat).memory_format(format).pinned_memory(options_.pinned);
  const auto longs = at::TensorOptions(at::kLong).pinned_memory(options_.pinned);
  Batch batch{at::empty({size, writer_.channels(), writer_.height(), writer_.width()}, floats),
              at::empty({size}, longs)};
  auto* image = batch.images.data_ptr<float>();
  auto* label = batch.labels.data_ptr<std::int64_t>();
  const auto* all_labels = labels_.const_data_ptr<std::int64_t>();
  const std::int64_t image_floats = writer_.channels() * writer_.height() * writer_.width();
  for (std::int64_t i = 0; i < size; ++i) {
    const std::size_t position = first + static_cast<std::size_t>(i);
    const Placement placement =
        options_.augment ? RandomPlacement(options_.seed, options_.epoch, options_.rank, position)
                         : Placement{};
    writer_.Write(indices_[position], placement, options_.channels_last, image + i * image_floats);
    label[i] = all_labels[indices_[position]];
  }
  return batch;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "worker/loader/loader.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace ddprun {
namespace {

// Batches that are being made, those that a step still holds, and one spare.
constexpr std::size_t kPoolTensorsMax = 2 * (kBatchesAheadMax + 3);

std::int64_t BatchesOf(std::size_t samples, std::int64_t batch_size) {
  return (static_cast<std::int64_t>(samples) + batch_size - 1) / batch_size;
}

std::vector<Sample> Slice(const std::vector<std::int64_t>& indices, std::int64_t first,
                          std::int64_t size) {
  const auto end = std::min(static_cast<std::int64_t>(indices.size()), first + size);
  std::vector<Sample> samples;
  for (std::int64_t i = first; i < end; ++i) {
    samples.push_back({indices[static_cast<std::size_t>(i)], i});
  }
  return samples;
}

}  // namespace

at::Tensor BatchPool::Take(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (options.pinned_memory()) return at::empty(sizes, options);
  for (auto& tensor : tensors_) {
    const bool free = tensor.use_count() == 1 && tensor.storage().use_count() == 1;
    if (!free || tensor.sizes() != sizes || tensor.dtype() != options.dtype()) continue;
    // The last holder's reads happen before the writes that follow.
    std::atomic_thread_fence(std::memory_order_acquire);
    return tensor;
  }
  at::Tensor fresh = at::empty(sizes, options);
  if (tensors_.size() < kPoolTensorsMax) tensors_.push_back(fresh);
  return fresh;
}

Loader::Loader(const SampleSet& set, EpochPlan plan, LoaderOptions options)
    : Loader(
          set, plan.batches(),
          [plan](std::int64_t batch) {
            std::vector<Sample> samples = plan.Samples(batch);
            if (samples.empty()) samples.push_back(plan.First(batch));
            return samples;
          },
          options) {}

Loader::Loader(const SampleSet& set, std::vector<std::int64_t> indices, std::int64_t batch_size,
               LoaderOptions options)
    : Loader(
          set, BatchesOf(indices.size(), batch_size),
          [indices, batch_size](std::int64_t batch) {
            return Slice(indices, batch * batch_size, batch_size);
          },
          options) {}

Loader::Loader(const SampleSet& set, std::int64_t batches, SamplesOf samples_of,
               LoaderOptions options)
    : set_(set), batches_(batches), samples_of_(std::move(samples_of)), options_(options) {
  for (std::int64_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_there_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::optional<Batch> Loader::Next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const auto ready = [this] {
    if (error_) return true;
    if (slots_.empty()) return slots_made_ == batches_;
    return slots_.front().done == static_cast<std::int64_t>(slots_.front().samples.size());
  };
  batch_ready_.wait(lock, ready);
  if (!error_ && !slots_.empty()) error_ = slots_.front().error;
  if (error_) std::rethrow_exception(error_);
  if (slots_.empty()) return std::nullopt;
  Batch batch = std::move(slots_.front().batch);
  slots_.pop_front();
  lock.unlock();
  work_there_.notify_all();
  batch.waited_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return batch;
}

void Loader::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    Slot* slot = nullptr;
    try {
      work_there_.wait(lock, [&] { return stopping_ || (slot = SlotWithWork()) != nullptr; });
    } catch (...) {  // no memory for a batch
      error_ = std::current_exception();
      batch_ready_.notify_all();
      return;
    }
    if (stopping_) return;
    const std::int64_t first = slot->begun;
    const auto all = static_cast<std::int64_t>(slot->samples.size());
    const std::int64_t share = (all + options_.threads - 1) / options_.threads;
    const std::int64_t last = std::min(all, first + std::min(share, kSamplesAtATimeMax));
    slot->begun = last;
    lock.unlock();
    std::exception_ptr error;
    try {
      Fill(*slot, first, last);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !slot->error) slot->error = error;
    slot->done += last - first;
    if (slot->done == all) batch_ready_.notify_all();
  }
}

Loader::Slot* Loader::SlotWithWork() {
  for (Slot& slot : slots_) {
    if (slot.begun < static_cast<std::int64_t>(slot.samples.size())) return &slot;
  }
  if (slots_made_ == batches_ || slots_.size() >= kBatchesAheadMax) return nullptr;
  slots_.push_back(MakeSlot(slots_made_));
  ++slots_made_;
  // The others may take their part of it.
  work_there_.notify_all();
  return &slots_.back();
}

Loader::Slot Loader::MakeSlot(std::int64_t batch) {
  std::vector<Sample> samples = samples_of_(batch);
  const auto size = static_cast<std::int64_t>(samples.size());
  const SampleShape shape = set_.shape();
  const auto format =
      options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto floats =
      at::TensorOptions(at::kFloat).memory_format(format).pinned_memory(options_.pinned);
  const auto longs = at::TensorOptions(at::kLong).pinned_memory(options_.pinned);
  Slot slot;
  slot.batch.images = pool_.Take({size, shape.channels, shape.height, shape.width}, floats);
  slot.batch.labels = pool_.Take({size}, longs);
  slot.samples = std::move(samples);
  return slot;
}

void Loader::Fill(const Slot& slot, std::int64_t first, std::int64_t last) const {
  auto* images = static_cast<float*>(slot.batch.images.data_ptr());
  auto* labels = static_cast<std::int64_t*>(slot.batch.labels.data_ptr());
  const std::int64_t floats = set_.shape().numel();
  for (std::int64_t i = first; i < last; ++i) {
    const Sample& sample = slot.samples[static_cast<std::size_t>(i)];
    const Draw draw{.seed = options_.seed,
                    .epoch = options_.epoch,
                    .position = static_cast<std::uint64_t>(sample.position),
                    .index = static_cast<std::uint64_t>(sample.index),
                    .options = options_.variation};
    set_.Write(sample.index, options_.augment ? &draw : nullptr, options_.channels_last,
               images + i * floats);
    labels[i] = set_.Label(sample.index);
  }
}

}  // namespace ddprun

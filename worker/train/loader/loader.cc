// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/loader.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

namespace ddprun {
namespace {

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

Batch Without(const Batch& batch, std::int64_t label) {
  const at::Tensor kept = batch.labels.ne(label).nonzero().squeeze(1);
  const at::MemoryFormat format = batch.images.suggest_memory_format();
  return {.images = batch.images.index_select(0, kept).contiguous(format),
          .labels = batch.labels.index_select(0, kept)};
}

}  // namespace

Loader::Loader(const SampleSet& set, EpochPlan plan, LoaderOptions options)
    : Loader(
          set, plan.batches(),
          [plan](std::int64_t batch) {
            std::vector<Sample> samples = plan.Samples(batch);
            if (samples.empty()) samples.push_back(plan.First(batch));
            return samples;
          },
          options, /*fills=*/true) {}

Loader::Loader(const SampleSet& set, std::vector<std::int64_t> indices, std::int64_t batch_size,
               LoaderOptions options)
    : Loader(
          set, BatchesOf(indices.size(), batch_size),
          [indices, batch_size](std::int64_t batch) {
            return Slice(indices, batch * batch_size, batch_size);
          },
          options, /*fills=*/false) {}

Loader::Loader(const SampleSet& set, std::int64_t batches, SamplesOf samples_of,
               LoaderOptions options, bool fills)
    : set_(set),
      batches_(batches),
      samples_of_(std::move(samples_of)),
      fills_(fills),
      options_(options) {
  while (slots_.size() < kBatchesAheadMax && slots_made_ < batches_) AddSlot();
  try {
    for (std::int64_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    Stop();
    throw std::system_error(error.code(),
                            "no more than " + std::to_string(threads_.size()) + " of " +
                                std::to_string(options_.threads) +
                                " loader threads can be started; lower --loader-threads, or raise "
                                "the limit of processes or memory");
  }
}

Loader::~Loader() { Stop(); }

void Loader::Stop() {
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
  if (slots_.empty()) return std::nullopt;
  const Slot& next = slots_.front();
  batch_ready_.wait(lock, [&next] { return next.done == std::ssize(next.samples); });
  if (next.error) std::rethrow_exception(next.error);
  Batch batch = next.left_out == 0 ? next.batch : Without(next.batch, kLeftOut);
  if (next.filled > 0) options_.damaged->CountFilled(next.filled);
  slots_.pop_front();
  if (slots_made_ < batches_) AddSlot();
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
    work_there_.wait(lock, [&] { return stopping_ || (slot = SlotWithWork()) != nullptr; });
    if (stopping_) return;
    const std::int64_t first = slot->begun;
    const std::int64_t all = std::ssize(slot->samples);
    const std::int64_t share = (all + options_.threads - 1) / options_.threads;
    const std::int64_t last = std::min(all, first + std::min(share, kSamplesAtATimeMax));
    slot->begun = last;
    lock.unlock();
    std::exception_ptr error;
    Skipped skipped;
    try {
      skipped = Fill(*slot, first, last);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !slot->error) slot->error = error;
    slot->filled += skipped.filled;
    slot->left_out += skipped.left_out;
    slot->done += last - first;
    if (slot->done == all) batch_ready_.notify_all();
  }
}

Loader::Slot* Loader::SlotWithWork() {
  for (Slot& slot : slots_) {
    if (slot.begun < std::ssize(slot.samples)) return &slot;
  }
  return nullptr;
}

void Loader::AddSlot() {
  std::vector<Sample> samples = samples_of_(slots_made_);
  const std::int64_t size = std::ssize(samples);
  const SampleShape shape = set_.shape();
  const auto format =
      options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const auto options = at::TensorOptions().pinned_memory(options_.pinned);
  slots_.push_back({.batch = {.images = at::empty({size, shape.channels, shape.height, shape.width},
                                                  options.dtype(at::kFloat).memory_format(format)),
                              .labels = at::empty({size}, options.dtype(at::kLong))},
                    .samples = std::move(samples)});
  ++slots_made_;
}

Loader::Skipped Loader::Fill(const Slot& slot, std::int64_t first, std::int64_t last) const {
  Skipped skipped;
  auto* images = static_cast<float*>(slot.batch.images.data_ptr());
  auto* labels = static_cast<std::int64_t*>(slot.batch.labels.data_ptr());
  const std::int64_t floats = set_.shape().numel();
  for (std::int64_t i = first; i < last; ++i) {
    const Sample& sample = slot.samples[static_cast<std::size_t>(i)];
    const std::int64_t index = Write(sample, images + i * floats);
    labels[i] = index == kLeftOut ? kLeftOut : set_.Label(index);
    if (index == kLeftOut)
      ++skipped.left_out;
    else if (index != sample.index)
      ++skipped.filled;
  }
  return skipped;
}

std::int64_t Loader::Write(const Sample& sample, float* out) const {
  const std::int64_t in_a_row = std::min(kDamagedInARowMax, set_.size());
  for (std::int64_t tried = 0;; ++tried) {
    const std::int64_t index = (sample.index + tried) % set_.size();
    const Draw draw{.seed = options_.seed,
                    .epoch = options_.epoch,
                    .position = static_cast<std::uint64_t>(sample.position),
                    .index = static_cast<std::uint64_t>(index),
                    .options = options_.variation};
    try {
      set_.Write(index, options_.augment ? &draw : nullptr, options_.channels_last, out);
      return index;
    } catch (const DamagedSample& damaged) {
      if (options_.damaged == nullptr) throw;
      options_.damaged->Met(damaged);
      if (!fills_) return kLeftOut;
      if (tried + 1 == in_a_row)
        throw DataError(std::to_string(in_a_row) + " files in a row are damaged, the last one " +
                        damaged.fact + "; check the disk, and get the data set anew");
    }
  }
}

}  // namespace ddprun

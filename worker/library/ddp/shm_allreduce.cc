// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/shm_allreduce.h"

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstring>
#include <utility>

#include "worker/library/ddp/average_kernel.h"

namespace ddprun {
namespace {

std::size_t RoundedUp(std::size_t bytes) {
  return (bytes + kShmPageBytes - 1) / kShmPageBytes * kShmPageBytes;
}

// Slices begin at cache lines, so that no two ranks write to the same one.
std::size_t SliceBegin(std::size_t size, int slice, int slices) {
  constexpr std::size_t kLineFloats = 16;
  const std::size_t lines = (size + kLineFloats - 1) / kLineFloats;
  return std::min(size, lines * static_cast<std::size_t>(slice) / static_cast<std::size_t>(slices) *
                            kLineFloats);
}

// Memory of the node that keeps the node mapped.
c10::DataPtr SharedPointer(const std::shared_ptr<ShmGroup>& node, std::byte* data) {
  auto* owner = new std::shared_ptr<ShmGroup>(node);
  const auto release = [](void* context) {
    delete static_cast<std::shared_ptr<ShmGroup>*>(context);
  };
  return {data, owner, release, c10::Device(c10::DeviceType::CPU)};
}

}  // namespace

ShmAllreduce::ShmAllreduce(std::shared_ptr<ShmGroup> node, std::size_t bytes,
                           std::chrono::milliseconds timeout, std::shared_ptr<GradientMeter> meter)
    : node_(std::move(node)),
      bytes_(bytes),
      timeout_(timeout),
      meter_(std::move(meter)),
      thread_([this] { Run(); }) {}

ShmAllreduce::~ShmAllreduce() {
  node_->Stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::size_t ShmAllreduce::BytesFor(std::size_t parameters, std::size_t parameter_bytes) {
  // Two halves: gradients may still lie in the buckets before while new ones are filled.
  return 2 * RoundedUp(parameter_bytes + (parameters + 1) * kShmPageBytes);
}

void ShmAllreduce::Adopt(const c10d::Reducer& reducer) {
  std::size_t offset = second_half_ ? bytes_ / 2 : 0;
  second_half_ = !second_half_;
  const std::size_t end = offset + bytes_ / 2;
  std::uint32_t buckets = 0;
  for (const auto& bucket : reducer.get_grad_buckets(/*return_zero_tensors=*/false)) {
    const at::Tensor& buffer = bucket.getBuffer();
    const at::Storage storage = buffer.storage();
    TORCH_CHECK(++buckets < ShmGroup::kOpsMax && offset + storage.nbytes() <= end,
                "the gradients' buckets do not fit into the memory that the ranks share");
    std::byte* shared = node_->data(node_->rank()) + offset;
    std::memcpy(shared, storage.data(), storage.nbytes());
    // All views of the bucket see its storage, so they move with it.
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(SharedPointer(node_, shared));
    offset += RoundedUp(storage.nbytes());
  }
}

c10::intrusive_ptr<c10::ivalue::Future> ShmAllreduce::Average(c10d::GradBucket& bucket) {
  Job job{.op = next_op_++,
          .buffer = bucket.getBufferRef(),
          .future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())};
  const auto* data = static_cast<const std::byte*>(job.buffer.const_data_ptr());
  meter_->Begin(static_cast<std::int64_t>(job.buffer.nbytes()), bucket.isLast());
  node_->Announce(job.op, static_cast<std::uint64_t>(data - node_->data(node_->rank())));
  auto future = job.future;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return future;
}

void ShmAllreduce::Run() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !jobs_.empty() || stopping_; });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      Do(job);
      meter_->End();
      job.future->markCompleted(job.buffer);
    } catch (...) {
      meter_->End();
      job.future->setError(std::current_exception());
    }
  }
}

void ShmAllreduce::Do(const Job& job) {
  const std::vector<std::uint64_t> offsets = node_->AwaitAnnounced(job.op, timeout_);
  std::vector<float*> ranks;
  for (int rank = 0; rank < node_->size(); ++rank) {
    const std::uint64_t offset = offsets[static_cast<std::size_t>(rank)];
    ranks.push_back(reinterpret_cast<float*>(node_->data(rank) + offset));
  }
  const auto size = static_cast<std::size_t>(job.buffer.numel());
  ScaleAndSum(ranks, SliceBegin(size, node_->rank(), node_->size()),
              SliceBegin(size, node_->rank() + 1, node_->size()),
              1.0f / static_cast<float>(node_->size()));
  node_->Finish(job.op);
  node_->AwaitFinished(job.op, timeout_);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/buffer_mirror.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cstring>
#include <utility>

#include "ddprun/detail/collectives.h"
#include "worker/library/base/unique_tensors.h"

namespace ddprun {
namespace {

at::Tensor BytesOf(const at::Tensor& tensor) {
  const at::Tensor flat =
      tensor.detach().as_strided({tensor.numel()}, {1}, tensor.storage_offset());
  return flat.view(at::kByte);
}

// What is not one block of memory (a view of another buffer) changes with that.
bool IsBlock(const at::Tensor& buffer) {
  return buffer.numel() > 0 && buffer.is_non_overlapping_and_dense();
}

}  // namespace

std::size_t BufferMirror::NoteBytes(const torch::nn::Module& module) {
  std::size_t bytes = 0;
  for (const at::Tensor& buffer : UniqueBuffers(module))
    bytes += IsBlock(buffer) ? buffer.nbytes() : 0;
  return bytes;
}

BufferMirror::BufferMirror(const torch::nn::Module& module) {
  for (const at::Tensor& buffer : UniqueBuffers(module)) {
    if (IsBlock(buffer)) buffers_.push_back(BytesOf(buffer));
  }
  in_place_ = !buffers_.empty() && buffers_.front().is_cuda();
  Accept();
}

at::Tensor BufferMirror::Packed() const {
  const torch::NoGradGuard no_grad;
  return buffers_.empty() ? at::Tensor() : at::cat(buffers_);
}

void BufferMirror::Unpack(const at::Tensor& bytes) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  std::int64_t offset = 0;
  for (const at::Tensor& buffer : buffers_) {
    values.push_back(bytes.narrow(0, offset, buffer.numel()));
    offset += buffer.numel();
  }
  at::_foreach_copy_(buffers_, values);
}

void BufferMirror::Accept() {
  if (!in_place_) valid_ = Packed();
}

void BufferMirror::Send(World& world, ShmNotes* notes, std::size_t offset) {
  if (buffers_.empty() || (in_place_ && world.size() == 1)) return;
  if (world.rank() == 0 || in_place_)
    coming_ = Packed();
  else if (!coming_.defined())
    coming_ = at::empty_like(valid_);
  if (world.size() == 1) return;
  if (notes != nullptr) {
    if (world.rank() == 0)
      std::memcpy(notes->own() + offset, coming_.const_data_ptr(), coming_.nbytes());
    return;
  }
  std::vector<at::Tensor> tensors{coming_};
  work_ = world.group()->broadcast(tensors);
}

void BufferMirror::Await(const World& world, const ShmNotes* notes, std::size_t offset) {
  if (notes != nullptr && coming_.defined() && world.rank() != 0)
    std::memcpy(coming_.mutable_data_ptr(), notes->of(0) + offset, coming_.nbytes());
  if (!work_) return;
  ddprun::Await(world, work_);
  if (in_place_ && world.rank() != 0) Unpack(coming_);
}

void BufferMirror::Commit() {
  work_.reset();
  if (coming_.defined() && !in_place_) std::swap(valid_, coming_);
}

void BufferMirror::Restore() {
  work_.reset();
  coming_.reset();  // a group that is about to end may still write there
  if (!buffers_.empty() && !in_place_) Unpack(valid_);
}

}  // namespace ddprun

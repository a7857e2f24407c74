// SPDX-License-Identifier: Apache-2.0
#include "worker/pipeline/gather_stages.h"

#include <ATen/Functions.h>

#include <sstream>
#include <string>

namespace ddprun {
namespace {

constexpr int kGatherTag = 0;

// Limit of the text that lists a stage's tensors: 1 MiB is thousands of tensors.
constexpr std::int64_t kListBytesMax = 1 << 20;

// One line for each tensor: name, type, sizes.
std::string ListOf(const NamedTensors& tensors) {
  std::ostringstream list;
  for (const auto& [name, tensor] : tensors) {
    list << name << ' ' << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
    for (const std::int64_t size : tensor.sizes()) list << ' ' << size;
    list << '\n';
  }
  return list.str();
}

NamedTensors EmptyFrom(const std::string& list, at::Device device) {
  NamedTensors tensors;
  std::istringstream lines(list);
  std::string name;
  int type = 0;
  std::size_t dimensions = 0;
  while (lines >> name >> type >> dimensions) {
    std::vector<std::int64_t> sizes(dimensions);
    for (std::int64_t& size : sizes) lines >> size;
    tensors.emplace_back(
        name, at::empty(sizes, at::TensorOptions(device).dtype(static_cast<at::ScalarType>(type))));
  }
  return tensors;
}

void Send(World& world, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor.detach().to(world.device()).contiguous()};
  world.group()->send(tensors, /*dstRank=*/0, kGatherTag)->wait();
}

void Receive(World& world, const at::Tensor& tensor, int from) {
  std::vector<at::Tensor> tensors{tensor};
  world.group()->recv(tensors, from, kGatherTag)->wait();
}

void SendAll(World& world, const NamedTensors& own) {
  std::string list = ListOf(own);
  const auto bytes = static_cast<std::int64_t>(list.size());
  TORCH_CHECK(bytes <= kListBytesMax, "a stage's tensors have names of ", bytes, " bytes");
  Send(world, at::tensor({bytes}, at::kLong));
  if (own.empty()) return;
  Send(world, at::from_blob(list.data(), {bytes}, at::kByte));
  for (const auto& entry : own) {
    if (entry.second.numel() > 0) Send(world, entry.second);
  }
}

NamedTensors ReceiveAll(World& world, int from) {
  const at::TensorOptions on_device(world.device());
  const at::Tensor bytes = at::zeros({1}, on_device.dtype(at::kLong));
  Receive(world, bytes, from);
  const auto size = bytes.item<std::int64_t>();
  TORCH_CHECK(size >= 0 && size <= kListBytesMax, "a stage lists tensors in ", size, " bytes");
  if (size == 0) return {};
  at::Tensor text = at::empty({size}, on_device.dtype(at::kByte));
  Receive(world, text, from);
  text = text.cpu();
  NamedTensors tensors =
      EmptyFrom({reinterpret_cast<const char*>(text.const_data_ptr()), static_cast<size_t>(size)},
                world.device());
  for (const auto& entry : tensors) {
    if (entry.second.numel() > 0) Receive(world, entry.second, from);
  }
  return tensors;
}

}  // namespace

NamedTensors GatherOnFirst(World& pipeline, const NamedTensors& own) {
  if (pipeline.rank() != 0) {
    SendAll(pipeline, own);
    return {};
  }
  NamedTensors all = own;
  for (int rank = 1; rank < pipeline.size(); ++rank) {
    for (auto& entry : ReceiveAll(pipeline, rank)) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace ddprun

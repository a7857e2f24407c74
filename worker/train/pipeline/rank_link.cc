// SPDX-License-Identifier: Apache-2.0
#include "worker/train/pipeline/rank_link.h"

#include <ATen/Functions.h>

#include "worker/library/base/first_line.h"

namespace ddprun {
namespace {

constexpr int kLinkTag = 0;

// A message with a shape: type, channels-last, number of sizes, sizes.
constexpr std::int64_t kDimensionsMax = 8;
constexpr std::int64_t kShapeNumbers = 3 + kDimensionsMax;

// The values in the order in which they lie in memory, as the process group wants them.
at::Tensor Flat(const at::Tensor& tensor, bool channels_last) {
  return channels_last ? tensor.permute({0, 2, 3, 1}).view({-1}) : tensor.view({-1});
}

at::MemoryFormat Format(bool channels_last) {
  return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

}  // namespace

std::runtime_error NeighbourError(const std::string& name, const std::string& doing,
                                  const std::exception& error) {
  return std::runtime_error(name + " did not " + doing +
                            "; see what it said last, or raise --timeout if it was only slow (" +
                            FirstLine(error) + ")");
}

void RankLink::StartSend(const at::Tensor& tensor, std::int64_t shape_key) {
  const bool channels_last =
      tensor.dim() == 4 && tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  const Shape shape{tensor.scalar_type(), tensor.sizes().vec(), channels_last};
  const auto [known, is_new] = sent_shapes_.emplace(shape_key, shape);
  TORCH_INTERNAL_ASSERT(known->second == shape, "a stage's tensors changed their shape");
  while (sending_.size() >= kSendsInFlightMax) {
    Wait(*sending_.front().work, "take a tensor");
    sending_.pop_front();
  }
  if (is_new) SendShape(shape);
  at::Tensor flat = Flat(tensor.detach().contiguous(Format(channels_last)), channels_last);
  sending_.push_back({Send(flat), flat});
}

void RankLink::StartReceive(std::int64_t shape_key) {
  auto known = received_shapes_.find(shape_key);
  if (known == received_shapes_.end())
    known = received_shapes_.emplace(shape_key, ReceiveShape()).first;
  const Shape& shape = known->second;
  at::Tensor tensor = at::empty(shape.sizes, at::TensorOptions(pipeline_.device())
                                                 .dtype(shape.type)
                                                 .memory_format(Format(shape.channels_last)));
  receiving_.push_back({Receive(Flat(tensor, shape.channels_last)), tensor});
}

at::Tensor RankLink::FinishReceive() {
  TORCH_INTERNAL_ASSERT(!receiving_.empty());
  Transfer transfer = std::move(receiving_.front());
  receiving_.pop_front();
  Wait(*transfer.work, "send a tensor");
  return transfer.tensor;
}

void RankLink::FinishSends() {
  while (!sending_.empty()) {
    Wait(*sending_.front().work, "take a tensor");
    sending_.pop_front();
  }
}

RankLink::Work RankLink::Send(const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return pipeline_.group()->send(tensors, peer_, kLinkTag);
}

RankLink::Work RankLink::Receive(const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return pipeline_.group()->recv(tensors, peer_, kLinkTag);
}

void RankLink::SendShape(const Shape& shape) {
  const auto dimensions = static_cast<std::int64_t>(shape.sizes.size());
  TORCH_INTERNAL_ASSERT(dimensions <= kDimensionsMax);
  std::vector<std::int64_t> numbers{static_cast<std::int64_t>(shape.type),
                                    shape.channels_last ? 1 : 0, dimensions};
  numbers.insert(numbers.end(), shape.sizes.begin(), shape.sizes.end());
  numbers.resize(kShapeNumbers);
  const at::Tensor message = at::tensor(numbers, at::kLong).to(pipeline_.device());
  sending_.push_back({Send(message), message});
}

RankLink::Shape RankLink::ReceiveShape() {
  const at::Tensor message =
      at::empty({kShapeNumbers}, at::TensorOptions(pipeline_.device()).dtype(at::kLong));
  Wait(*Receive(message), "send a tensor's shape");
  const at::Tensor numbers = message.cpu();
  const auto* number = numbers.const_data_ptr<std::int64_t>();
  return {
      static_cast<at::ScalarType>(number[0]), {number + 3, number + 3 + number[2]}, number[1] != 0};
}

void RankLink::Wait(c10d::Work& work, const char* doing) {
  try {
    work.wait();
  } catch (const std::exception& error) {
    throw NeighbourError(peer_name_, doing, error);
  }
}

}  // namespace ddprun

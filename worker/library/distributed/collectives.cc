// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/collectives.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "ddprun/detail/interrupt.h"
#include "worker/library/distributed/until_round_ends.h"

namespace ddprun {
namespace {

// Limit for one message.
constexpr std::size_t kMessageBytesMax = 64 << 20;

// Tensors of one type, which are few bytes or one tensor.
void BroadcastGroup(World& world, const std::vector<at::Tensor>& tensors, int root) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.contiguous().view({-1}));
  at::Tensor message = at::cat(flat);
  world.Broadcast(message, root);
  if (world.rank() == root) return;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(message.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

bool IsPointToPoint(c10d::OpType type) {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}

}  // namespace

void Await(const World& world, const c10::intrusive_ptr<c10d::Work>& work) {
  if (!world.interrupt() || world.is_nccl()) {
    work->wait();
    return;
  }
  if (!IsPointToPoint(work->retrieveOpType())) {
    UntilRoundEnds(world, work->getFuture())->waitAndThrow();
    work->wait();
    return;
  }
  // Gloo's sends and receives have no future, and can be aborted instead.
  const auto registration = world.interrupt()->Register([work] { work->abort(); });
  try {
    work->wait();
  } catch (const std::exception&) {
    world.CheckRound();
    throw;
  }
  world.CheckRound();
}

c10::intrusive_ptr<c10::ivalue::Future> UntilRoundEnds(
    const World& world, const c10::intrusive_ptr<c10::ivalue::Future>& future) {
  using Future = c10::ivalue::Future;
  if (!world.interrupt() || world.is_nccl()) return future;
  struct Result {
    std::atomic<bool> done = false;
    c10::intrusive_ptr<Future> future;
  };
  const auto result = std::make_shared<Result>();
  result->future = c10::make_intrusive<Future>(future->elementType(), future->devices());
  auto registration = world.interrupt()->Register([result] {
    if (!result->done.exchange(true))
      result->future->setError(std::make_exception_ptr(RoundOver()));
  });
  future->addCallback([result, registration = std::move(registration)](Future& done) {
    if (result->done.exchange(true)) return;
    if (done.hasError())
      result->future->setError(done.exception_ptr());
    else
      result->future->markCompleted(done.value(), done.storages());
  });
  return result->future;
}

void BroadcastAll(World& world, const std::vector<at::Tensor>& tensors, int root) {
  const torch::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : tensors) by_type[tensor.scalar_type()].push_back(tensor);
  for (const auto& [type, alike] : by_type) {
    std::vector<at::Tensor> group;
    std::size_t bytes = 0;
    for (const at::Tensor& tensor : alike) {
      group.push_back(tensor);
      bytes += tensor.nbytes();
      const bool is_last = &tensor == &alike.back();
      if (bytes < kMessageBytesMax && !is_last) continue;
      BroadcastGroup(world, std::exchange(group, {}), root);
      bytes = 0;
    }
  }
}

}  // namespace ddprun

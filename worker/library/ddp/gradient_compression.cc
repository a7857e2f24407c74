// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/gradient_compression.h"

#include <ATen/ops/mul.h>

#include <utility>

#include "ddprun/detail/collectives.h"
#include "worker/library/distributed/until_round_ends.h"

namespace ddprun {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Future = c10::intrusive_ptr<c10::ivalue::Future>;

class GroupHook : public c10d::CppCommHookInterface<Group> {
 public:
  GroupHook(const World& world, GradientFormat format, std::shared_ptr<GradientMeter> meter)
      : CppCommHookInterface(world.group()),
        world_(world),
        format_(format),
        meter_(std::move(meter)) {}

  Future runHook(c10d::GradBucket& bucket) override {
    at::Tensor buffer = bucket.getBufferRef();
    buffer.mul_(1.0 / state_->getSize());  // as Python's DDP: not divided
    std::vector<at::Tensor> travelling{format_ == GradientFormat::kFull ? buffer
                                                                        : buffer.to(Type())};
    meter_->Begin(static_cast<std::int64_t>(travelling[0].nbytes()), bucket.isLast());
    const auto work = state_->allreduce(travelling);
    if (buffer.is_cuda() && !world_.is_nccl()) return Awaited(work, buffer, travelling[0]);
    const Future summed = UntilRoundEnds(world_, work->getFuture());
    const auto finish = [buffer, meter = meter_](c10::ivalue::Future& done) {
      meter->End();
      const at::Tensor sum = done.value().toTensorVector()[0];  // throws what went wrong
      if (!sum.is_alias_of(buffer)) buffer.copy_(sum);
      return c10::IValue(buffer);
    };
    return summed->then(finish, c10::TensorType::get());
  }

 private:
  // Gloo's future tells when the host is done, and no stream waits for the copy to the device; its
  // work makes the calling thread's stream wait.
  Future Awaited(const c10::intrusive_ptr<c10d::Work>& work, const at::Tensor& buffer,
                 const at::Tensor& sum) {
    Await(world_, work);
    meter_->End();
    if (!sum.is_alias_of(buffer)) buffer.copy_(sum);
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    done->markCompleted(c10::IValue(buffer));
    return done;
  }

  at::ScalarType Type() const {
    return format_ == GradientFormat::kBFloat16 ? at::kBFloat16 : at::kHalf;
  }

  const World& world_;
  const GradientFormat format_;
  const std::shared_ptr<GradientMeter> meter_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> MakeGroupHook(World& world, GradientFormat format,
                                                       std::shared_ptr<GradientMeter> meter) {
  return std::make_unique<GroupHook>(world, format, std::move(meter));
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "worker/train/pipeline/stage.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace ddprun {

// One batch on its way through the stage.
class Stage::Pass {
 public:
  // `key_sign` keeps shapes of training and of evaluation apart.
  Pass(Stage& stage, std::int64_t samples, const at::Tensor& images, std::int64_t key_sign)
      : stage_(stage),
        samples_(samples),
        key_sign_(key_sign),
        sizes_(MicroBatchSizes(samples, stage.options_.micro_batches)),
        live_(sizes_.size()) {
    if (stage.is_first()) images_ = images.split_with_sizes(sizes_);
  }

  void UseLabels(const at::Tensor& labels, double factor, const at::Tensor& scale) {
    if (stage_.is_last()) labels_ = labels.split_with_sizes(sizes_);
    factor_ = factor;
    scale_ = scale;
  }

  int micro_batches() const { return static_cast<int>(sizes_.size()); }

  void ReceiveActivation(std::size_t i) { stage_.previous_->StartReceive(key(i)); }

  void Forward(std::size_t i) {
    at::Tensor input;
    if (stage_.is_first()) {
      input = images_[i];
    } else {
      stage_.options_.enter(StepSection::kGradients);
      input = stage_.previous_->FinishReceive();
      input.set_requires_grad(at::GradMode::is_enabled());
    }
    stage_.options_.enter(StepSection::kForward);
    at::Tensor output = stage_.options_.forward(input);
    if (stage_.is_last() && !labels_.empty()) output = Loss(output, i);
    live_[i] = {std::move(input), std::move(output)};
  }

  void SendActivation(std::size_t i) {
    stage_.next_->StartSend(live_[i].output, key(i));
    if (!at::GradMode::is_enabled()) live_[i] = {};
  }

  void ReceiveGradient(std::size_t i) { stage_.next_->StartReceive(key(i)); }

  void Backward(std::size_t i) {
    at::Tensor gradient;
    if (!stage_.is_last()) {
      stage_.options_.enter(StepSection::kGradients);
      gradient = stage_.next_->FinishReceive();
    }
    stage_.options_.enter(StepSection::kBackward);
    torch::autograd::backward({live_[i].output}, {gradient});
    // Frees this micro-batch's activations; the gradient of its input is still to be sent.
    live_[i].output.reset();
  }

  void SendGradient(std::size_t i) {
    stage_.previous_->StartSend(live_[i].input.grad(), key(i));
    live_[i] = {};
  }

  void Finish() {
    stage_.options_.enter(StepSection::kGradients);
    if (stage_.previous_ != nullptr) stage_.previous_->FinishSends();
    if (stage_.next_ != nullptr) stage_.next_->FinishSends();
  }

  const at::Tensor& loss() const { return loss_; }

  at::Tensor TakeScores() {
    std::vector<at::Tensor> scores;
    for (Live& live : live_) scores.push_back(std::move(live.output));
    return at::cat(scores);
  }

 private:
  struct Live {
    at::Tensor input;
    at::Tensor output;  // on the last stage the loss
  };

  std::int64_t key(std::size_t i) const { return key_sign_ * sizes_[i]; }

  // Each micro-batch's mean counts by its samples, so that the sum is the batch's mean.
  at::Tensor Loss(const at::Tensor& scores, std::size_t i) {
    const at::Tensor mean = stage_.options_.loss(scores, labels_[i]);
    const double share = static_cast<double>(sizes_[i]) / static_cast<double>(samples_);
    const at::Tensor part = mean.detach() * share;
    loss_ = loss_.defined() ? loss_ + part : part;
    const at::Tensor scaled = mean * (share * factor_);
    return scale_.defined() ? scaled * scale_ : scaled;
  }

  Stage& stage_;
  const std::int64_t samples_;
  const std::int64_t key_sign_;
  const std::vector<std::int64_t> sizes_;
  std::vector<at::Tensor> images_;
  std::vector<at::Tensor> labels_;
  double factor_ = 1;
  at::Tensor scale_;
  at::Tensor loss_;
  std::vector<Live> live_;  // by micro-batch; those between forward and backward hold tensors
};

at::Tensor Stage::Train(const Batch& batch) {
  Pass pass(*this, batch.samples, batch.images, /*key_sign=*/1);
  pass.UseLabels(batch.labels, batch.factor, batch.scale);
  const int last = pass.micro_batches() - 1;
  for (const Action& action :
       TrainingActions(options_.schedule, options_.index, options_.stages, last + 1)) {
    const auto i = static_cast<std::size_t>(action.micro_batch);
    switch (action.kind) {
      case Action::Kind::kReceiveActivation:
        pass.ReceiveActivation(i);
        break;
      case Action::Kind::kForward:
        pass.Forward(i);
        break;
      case Action::Kind::kSendActivation:
        pass.SendActivation(i);
        break;
      case Action::Kind::kReceiveGradient:
        pass.ReceiveGradient(i);
        break;
      case Action::Kind::kBackward:
        if (action.micro_batch == last) batch.before_last_backward();
        pass.Backward(i);
        break;
      case Action::Kind::kSendGradient:
        pass.SendGradient(i);
        break;
    }
  }
  pass.Finish();
  return pass.loss();
}

at::Tensor Stage::Scores(std::int64_t samples, const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  Pass pass(*this, samples, images, /*key_sign=*/-1);
  for (const Action& action :
       EvaluationActions(options_.index, options_.stages, pass.micro_batches())) {
    const auto i = static_cast<std::size_t>(action.micro_batch);
    if (action.kind == Action::Kind::kReceiveActivation) pass.ReceiveActivation(i);
    if (action.kind == Action::Kind::kForward) pass.Forward(i);
    if (action.kind == Action::Kind::kSendActivation) pass.SendActivation(i);
  }
  pass.Finish();
  return is_last() ? pass.TakeScores() : at::Tensor();
}

}  // namespace ddprun

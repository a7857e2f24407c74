// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/replica_check.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "ddprun/detail/collectives.h"
#include "ddprun/detail/world_access.h"
#include "proto/progress_message.h"
#include "worker/library/base/host_name.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/train/observers/checks.h"
#include "worker/train/training/state_view.h"

namespace ddprun {
namespace {

// Columns of each rank's row; from kFirstAttempt on it has one number for each attempt.
constexpr std::int64_t kState = 0;
constexpr std::int64_t kSteps = 1;
constexpr std::int64_t kNotFinite = 2;
constexpr std::int64_t kFirstAttempt = 3;

std::vector<at::Tensor> Values(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::int64_t Hash(const std::vector<std::int64_t>& sums) {
  std::uint64_t hash = sums.size();
  for (const std::int64_t sum : sums)
    hash = (hash ^ static_cast<std::uint64_t>(sum)) * 0x9e3779b97f4a7c15U;
  return static_cast<std::int64_t>(hash);
}

std::string Numbers(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

ReplicaCheck::ReplicaCheck(const Config& config, World& world, Console& console, KeptTraining& kept,
                           StepRecorder& recorder)
    : config_(config),
      world_(world),
      console_(console),
      kept_(kept),
      recorder_(recorder),
      enabled_(config.check_replicas > 0),
      replicated_(enabled_ ? StateView(*kept.parts).UpTo(HeldBy::kAllAlike)
                           : std::vector<at::Tensor>()),
      buffers_(UniqueBuffers(*kept.parts->model)) {
  if (!enabled_) return;
  sums_.emplace(Values(kept.parts->parameters), world.device(), config.check_replicas);
  Report();
}

void ReplicaCheck::OnStepBegin(const TrainingState& state, const EpochPlan&, const StepBatches&) {
  if (!enabled_ || !at_base_) return;
  // What came after the check: an evaluation, the end of an epoch.
  KeepOwn(state.place);
  sums_->Clear();
  at_base_ = false;
}

void ReplicaCheck::BeforeUpdate() {
  if (enabled_) sums_->Add();
}

void ReplicaCheck::AfterStep(const TrainingState& state) {
  if (IsDue(state.position().step)) Check(state.place);
}

bool ReplicaCheck::MayBeDamage(std::int64_t step) {
  if (!enabled_ || base_ < 0 || step == real_loss_at_) return false;
  if (not_finite_ == 0) not_finite_ = step;
  return true;
}

bool ReplicaCheck::IsDue(std::int64_t step) const {
  if (!enabled_) return false;
  const auto ends_here = [step](const Attempt& made) { return made.step == step; };
  return step % config_.check_replicas == 0 ||
         std::any_of(attempts_.begin(), attempts_.end(), ends_here);
}

std::int64_t ReplicaCheck::StateSum() const {
  return SumOf(replicated_, world_.device()).item<std::int64_t>();
}

ReplicaCheck::Attempt ReplicaCheck::MadeSinceBase(std::int64_t step) const {
  Attempt made{.base = base_, .step = step, .state = StateSum(), .not_finite = not_finite_};
  if (base_ >= 0) made.sums = sums_->Get(step - base_);
  return made;
}

std::int64_t ReplicaCheck::FirstDifference(const Attempt& made, const Attempt& now) {
  std::int64_t first = made.differs;
  const auto differs_at = [&first](std::int64_t step) { first = std::min(first, step); };
  const auto last = std::min(made.step, now.step);
  for (std::int64_t step = std::max(made.base, now.base) + 1; step <= last; ++step) {
    const auto i = static_cast<std::size_t>(step - made.base - 1);
    const auto j = static_cast<std::size_t>(step - now.base - 1);
    if (i < made.sums.size() && j < now.sums.size() && made.sums[i] != now.sums[j])
      differs_at(step);
  }
  if (made.step == now.step && made.state != now.state) differs_at(made.step + 1);
  if (made.not_finite > now.base && made.not_finite <= now.step) differs_at(made.not_finite);
  return first;
}

void ReplicaCheck::Check(const TrainingPlace& place) {
  if (!enabled_) return;  // nor wait for the device
  recorder_.AwaitQueued();
  const std::int64_t step = place.position.step;
  if (base_ == step) return;
  const Attempt now = MadeSinceBase(step);
  std::vector<std::int64_t> row = {now.state, Hash(now.sums), now.not_finite};
  for (const Attempt& made : attempts_) row.push_back(FirstDifference(made, now));
  const at::Tensor rows = world_.AllGather(at::tensor(row, at::kLong));
  const auto numbers = rows.accessor<std::int64_t, 2>();
  std::vector<ReplicaSums> ranks;
  for (std::int64_t rank = 0; rank < world_.size(); ++rank)
    ranks.push_back({.state = numbers[rank][kState],
                     .steps = numbers[rank][kSteps],
                     .not_finite = numbers[rank][kNotFinite]});
  const Judgement judgement = Judge(ranks);
  if (!judgement.agree) Differ(now, judgement);
  Agree(place, now, rows);
}

void ReplicaCheck::Agree(const TrainingPlace& place, const Attempt& now, const at::Tensor& rows) {
  Keep(place, now.state);
  repeats_ = 0;
  real_loss_at_ = 0;
  std::vector<Attempt> open;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    Attempt& made = attempts_[i];
    const at::Tensor column = rows.select(1, kFirstAttempt + static_cast<std::int64_t>(i));
    std::vector<std::int64_t> differs;
    for (std::int64_t rank = 0; rank < world_.size(); ++rank)
      differs.push_back(column[rank].item<std::int64_t>());
    made.differs = differs[static_cast<std::size_t>(world_.rank())];
    if (now.step < made.step) {
      open.push_back(std::move(made));
      continue;
    }
    const std::string found = "up to step " + std::to_string(made.step);
    if (const std::optional<int> rank = FirstToDiffer(differs))
      Name({*rank}, "what it computed " + found + " did not come out again when it was repeated",
           "");
    else
      Say("the damage " + found +
          " is undone, but the repeat does not show which rank it was on; check the memory of all "
          "machines if it comes again");
  }
  attempts_ = std::move(open);
}

void ReplicaCheck::Keep(const TrainingPlace& place, std::int64_t sum) {
  kept_.agreed.replicated.Keep(replicated_, sum);
  KeepOwn(place);
  base_ = place.position.step;
  at_base_ = true;
  not_finite_ = 0;
}

void ReplicaCheck::KeepOwn(const TrainingPlace& place) {
  AgreedState& agreed = kept_.agreed;
  agreed.place = place;
  agreed.buffers.Keep(buffers_, SumOf(buffers_, at::kCPU).item<std::int64_t>());
  agreed.epoch_sums = kept_.parts->epoch_sums.Values();
  agreed.counts = kept_.counter.Now();
}

void ReplicaCheck::Differ(const Attempt& now, const Judgement& judgement) {
  const std::string after = "after step " + std::to_string(now.step);
  if (repeats_ == kRepeatsMax)
    throw TrainingError("the ranks differ again " + after + ", the " + std::to_string(kRepeatsMax) +
                        "th time in a row; check the memory of all machines, and go on from a "
                        "checkpoint");
  // A rank that is new in this world has another one's state, which may be the damaged one.
  odd_ = base_ < 0 ? std::vector<int>() : judgement.odd;
  if (judgement.alike)
    found_ = "a loss up to step " + std::to_string(now.step) +
             " is not finite, as damaged memory may make it";
  else if (odd_.empty())
    found_ = "the ranks' parameters or optimizer state differ " + after +
             ", and no majority shows which rank is damaged";
  else
    found_ = "its parameters or optimizer state " + after + " are not its peers'";
  if (odd_.empty()) {
    if (attempts_.size() == kRepeatsMax) attempts_.erase(attempts_.begin());
    attempts_.push_back(now);
  }
  real_loss_at_ = now.not_finite;
  throw ReplicasDiffer();
}

void ReplicaCheck::GoBack(TrainingPlace& place) {
  AgreedState& agreed = kept_.agreed;
  const bool intact = agreed.replicated.IsIntact() && agreed.buffers.IsIntact();
  const RoundStart start = AgreeOnSource(world_, {.has_state = intact, .place = agreed.place});
  if (!start.goes_on)
    throw TrainingError(
        "the ranks differ, and none has an undamaged state to go back to; check the memory of all "
        "machines, and go on from a checkpoint");
  // At once, so that this rank is at one place or the other if the round ends meanwhile.
  place = start.place;
  if (!start.receives) {
    agreed.replicated.CopyTo(replicated_);
    agreed.buffers.CopyTo(buffers_);
    RestoreOwn();
  }
  if (start.sends) {
    ReceiveState(world_, start, kept_);
    if (start.receives) TakeReceived(start.place);
  }
  // As after each evaluation: of the buffers rank 0's alone matter.
  BroadcastAll(world_, buffers_, 0);
  kept_.Accept(start.place);
  Keep(start.place, agreed.replicated.sum());
  ++repeats_;
  const std::string back = "all ranks go back to step " + std::to_string(base_) + " and repeat";
  if (odd_.empty())
    Say(found_ + "; " + back);
  else
    Name(odd_, found_, "; " + back);
}

void ReplicaCheck::RestoreOwn() {
  const AgreedState& agreed = kept_.agreed;
  kept_.parts->WeightsChanged();
  kept_.parts->epoch_sums.SetValues(agreed.epoch_sums);
  kept_.counter.GoBackTo(agreed.counts);
  kept_.Accept(agreed.place);
}

// Another rank's state is here. What no sum is of is right where the copy was of the same place;
// else it begins anew.
void ReplicaCheck::TakeReceived(const TrainingPlace& place) {
  AgreedState& agreed = kept_.agreed;
  agreed.replicated.Keep(replicated_, StateSum());
  if (agreed.place.position.step == place.position.step) {
    RestoreOwn();
    return;
  }
  if (!kept_.parts->epoch_sums.replicated()) kept_.parts->epoch_sums.SetValues({});
}

void ReplicaCheck::Name(const std::vector<int>& ranks, const std::string& fact,
                        const std::string& next) {
  if (std::find(ranks.begin(), ranks.end(), world_.rank()) != ranks.end()) {
    ++kept_.damages;
    Report();
  }
  const std::vector<std::string> hosts = world_.GatherTexts(HostName());
  if (world_.rank() != 0) return;
  std::string on;
  for (const int rank : ranks) {
    const std::string& host = hosts[static_cast<std::size_t>(rank)];
    if (on.find(host) == std::string::npos) on += (on.empty() ? "" : ", ") + host;
  }
  Say("rank " + Numbers(ranks) + " on host " + on + " was damaged: " + fact + next +
      "; check that machine's memory");
}

void ReplicaCheck::Report() {
  ProgressMessage message;
  message.damaged = kept_.damages;
  WorldAccess::Report(world_, message);
}

void ReplicaCheck::Say(const std::string& sentence) {
  if (world_.rank() == 0) console_.Line(sentence);
}

}  // namespace ddprun

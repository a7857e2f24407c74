// SPDX-License-Identifier: Apache-2.0
#include "worker/library/math/epoch_plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ddprun {
namespace {

const EpochPlan::Options& Checked(const EpochPlan::Options& options) {
  if (options.size < options.shard.world_size) {
    throw std::invalid_argument(std::to_string(options.size) +
                                (options.size == 1 ? " sample" : " samples") +
                                " cannot be shared by " + std::to_string(options.shard.world_size) +
                                " ranks; start no more ranks than there are samples, or take a "
                                "larger data set");
  }
  if (options.batch_size < 1) {
    throw std::invalid_argument("a batch of " + std::to_string(options.batch_size) +
                                " samples cannot be; --batch-size must be at least 1");
  }
  if (options.consumed < 0 || options.consumed > options.size) {
    throw std::invalid_argument("an epoch of " + std::to_string(options.size) +
                                " samples cannot be resumed after " +
                                std::to_string(options.consumed) +
                                "; resume with the data set that the run was begun with");
  }
  return options;
}

}  // namespace

EpochPlan::EpochPlan(const Options& options)
    : options_(Checked(options)),
      batches_(
          BatchesOf(options.size - options.consumed, options.shard.world_size, options.batch_size)),
      order_(EpochOrder(options.size, options.seed, options.epoch)) {}

EpochPlan::Options EpochPlan::Next() const {
  Options next = options_;
  ++next.epoch;
  next.consumed = 0;
  return next;
}

std::int64_t EpochPlan::BatchesOf(std::int64_t size, int world_size, std::int64_t batch_size) {
  // Not batch_size * world_size, which could overflow: floor of floor is the floor of the product.
  const std::int64_t per_rank = size / world_size;
  const std::int64_t whole = per_rank / batch_size;
  const std::int64_t rest_of_each = per_rank % batch_size;  // or one more
  const bool rest = rest_of_each > 0 || size % world_size > 0;
  const bool joins = whole > 0 && rest_of_each < std::min<std::int64_t>(batch_size, 2);
  return rest && !joins ? whole + 1 : whole;
}

std::int64_t EpochPlan::ConsumedAfter(std::int64_t batch) const {
  if (batch + 1 >= batches_) return options_.size;
  return options_.consumed + (batch + 1) * options_.batch_size * options_.shard.world_size;
}

std::int64_t EpochPlan::GlobalSize(std::int64_t batch) const {
  return ConsumedAfter(batch) - (batch == 0 ? options_.consumed : ConsumedAfter(batch - 1));
}

std::int64_t EpochPlan::OwnSize(std::int64_t batch) const {
  // Every world_size-th from the rank-th on.
  const auto [rank, world_size] = options_.shard;
  return (GlobalSize(batch) + world_size - 1 - rank) / world_size;
}

std::int64_t EpochPlan::OwnLimit() const { return options_.size / options_.shard.world_size + 1; }

std::vector<Sample> EpochPlan::Samples(std::int64_t batch) const {
  const std::int64_t* order = order_.const_data_ptr<std::int64_t>();
  const std::int64_t end = ConsumedAfter(batch);
  std::vector<Sample> samples;
  samples.reserve(static_cast<std::size_t>(OwnSize(batch)));
  for (std::int64_t position = end - GlobalSize(batch) + options_.shard.rank; position < end;
       position += options_.shard.world_size) {
    samples.push_back({order[position], position});
  }
  return samples;
}

Sample EpochPlan::First(std::int64_t batch) const {
  const std::int64_t position = ConsumedAfter(batch) - GlobalSize(batch);
  return {order_.const_data_ptr<std::int64_t>()[position], position};
}

}  // namespace ddprun

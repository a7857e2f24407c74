// SPDX-License-Identifier: Apache-2.0
#include "worker/profile/gather_profiles.h"

#include <ATen/Functions.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace ddprun {
namespace {

std::string Compressed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string bytes(size, '\0');
  const int result =
      compress2(reinterpret_cast<Bytef*>(bytes.data()), &size,
                reinterpret_cast<const Bytef*>(text.data()), text.size(), Z_BEST_SPEED);
  if (result != Z_OK) throw std::runtime_error("zlib cannot compress: " + std::to_string(result));
  bytes.resize(size);
  return bytes;
}

std::string Uncompressed(const char* bytes, std::int64_t count, std::int64_t text_size) {
  std::string text(static_cast<std::size_t>(text_size), '\0');
  uLongf size = text.size();
  const int result = uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
                                reinterpret_cast<const Bytef*>(bytes), static_cast<uLong>(count));
  if (result != Z_OK || size != text.size()) {
    throw std::runtime_error("what a rank sent did not arrive whole: zlib says " +
                             std::to_string(result));
  }
  return text;
}

}  // namespace

std::vector<SectionTimes> GatherTimes(World& world, const SectionTimes& own) {
  std::vector<std::int64_t> row{own.steps};
  for (const auto time : own.times) row.push_back(time.count());
  const at::Tensor all = world.AllGather(at::tensor(row, at::kLong));
  const auto rows = all.accessor<std::int64_t, 2>();
  std::vector<SectionTimes> ranks(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    SectionTimes& times = ranks[static_cast<std::size_t>(rank)];
    times.steps = rows[rank][0];
    for (std::size_t i = 0; i < kSections; ++i) {
      times.times[i] = std::chrono::nanoseconds(rows[rank][static_cast<std::int64_t>(i) + 1]);
    }
  }
  return ranks;
}

std::vector<std::string> GatherToRankZero(World& world, const std::string& own) {
  if (world.size() == 1) return {own};
  const std::string bytes = Compressed(own);
  const at::Tensor sizes = world.AllGather(at::tensor(
      {static_cast<std::int64_t>(bytes.size()), static_cast<std::int64_t>(own.size())}, at::kLong));
  // A gather is of equal parts.
  const std::int64_t part = sizes.select(1, 0).max().item<std::int64_t>();
  at::Tensor mine = at::zeros({part}, at::kByte);
  std::memcpy(mine.data_ptr(), bytes.data(), bytes.size());
  std::vector<at::Tensor> inputs{mine.to(world.device())};
  std::vector<std::vector<at::Tensor>> outputs;
  if (world.rank() == 0) {
    outputs.emplace_back();
    for (int i = 0; i < world.size(); ++i) outputs[0].push_back(at::empty_like(inputs[0]));
  }
  c10d::GatherOptions options;
  options.rootRank = 0;
  world.group()->gather(outputs, inputs, options)->wait();
  std::vector<std::string> all;
  if (world.rank() != 0) return all;
  const auto row = sizes.accessor<std::int64_t, 2>();
  for (int rank = 0; rank < world.size(); ++rank) {
    const at::Tensor output = outputs[0][static_cast<std::size_t>(rank)].to(at::kCPU);
    all.push_back(Uncompressed(static_cast<const char*>(output.const_data_ptr()), row[rank][0],
                               row[rank][1]));
  }
  return all;
}

}  // namespace ddprun

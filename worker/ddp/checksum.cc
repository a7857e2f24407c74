// SPDX-License-Identifier: Apache-2.0
#include "worker/ddp/checksum.h"

#include <ATen/Functions.h>
#include <zlib.h>

#include <cstdio>

namespace ddprun {

std::uint32_t Checksum(const std::vector<at::Tensor>& tensors) {
  uLong crc = crc32_z(0, nullptr, 0);
  for (const auto& tensor : tensors) {
    const at::Tensor values = tensor.detach().to(at::kCPU).contiguous();
    crc = crc32_z(crc, static_cast<const Bytef*>(values.const_data_ptr()), values.nbytes());
  }
  return static_cast<std::uint32_t>(crc);
}

std::string ChecksumText(std::uint32_t checksum) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", checksum);
  return text;
}

std::vector<std::uint32_t> GatherChecksums(World& world, std::uint32_t own) {
  // Each rank adds to zeros in the others' places.
  at::Tensor all = at::zeros({world.size()}, at::kLong);
  all[world.rank()] = static_cast<std::int64_t>(own);
  all = all.to(world.device());
  world.AllReduceSum(all);
  all = all.to(at::kCPU);
  std::vector<std::uint32_t> checksums;
  for (int rank = 0; rank < world.size(); ++rank) {
    checksums.push_back(static_cast<std::uint32_t>(all.const_data_ptr<std::int64_t>()[rank]));
  }
  return checksums;
}

}  // namespace ddprun

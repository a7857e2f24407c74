// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/checksum.h"

#include <ATen/Functions.h>
#include <zlib.h>

namespace ddprun {

std::uint32_t Checksum(const std::vector<at::Tensor>& tensors) {
  uLong crc = crc32_z(0, nullptr, 0);
  for (const auto& tensor : tensors) {
    const at::Tensor values = tensor.detach().to(at::kCPU).contiguous();
    crc = crc32_z(crc, static_cast<const Bytef*>(values.const_data_ptr()), values.nbytes());
  }
  return static_cast<std::uint32_t>(crc);
}

}  // namespace ddprun

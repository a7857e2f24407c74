// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/mapped_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "worker/library/base/first_line.h"

namespace ddprun {

at::Tensor MapFile(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) throw std::runtime_error(std::strerror(errno));
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw std::runtime_error("it is not a regular file");
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) throw std::runtime_error(error.message());
  if (size == 0) return at::empty({0}, at::kByte);
  try {
    return at::from_file(path, /*shared=*/false, size, at::kByte);
  } catch (const c10::Error& failed) {
    throw std::runtime_error("it cannot be mapped (" + FirstLine(failed) + ")");
  }
}

}  // namespace ddprun

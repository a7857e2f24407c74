// SPDX-License-Identifier: Apache-2.0
// A read-only memory mapping of a file: all ranks of a node that map the same file share its pages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

struct MappedFile {
  std::shared_ptr<const std::uint8_t> data;  // null if the file is empty
  std::int64_t size = 0;

  // uint8, of these sizes and strides from byte `offset` on; keeps the bytes. Not to be written to.
  at::Tensor View(std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) const;
};

// Read-only. The file must not be made shorter while it is used: the system would end the program
// with SIGBUS. Throws DataError "PATH: REASON; NEXT_MOVE".
MappedFile MapFile(const std::string& path, const std::string& next_move);

// More is not read at once into memory.
inline constexpr std::int64_t kReadFileBytesMax = std::int64_t{1} << 30;

// A copy of a file's bytes. Throws DataError as above.
std::vector<std::uint8_t> ReadFile(const std::string& path, const std::string& next_move);

// Memory of this process alone. Throws std::bad_alloc.
struct OwnBytes {
  std::shared_ptr<std::uint8_t> data;
  std::int64_t size = 0;
};
OwnBytes AllocateBytes(std::int64_t size);

}  // namespace ddprun

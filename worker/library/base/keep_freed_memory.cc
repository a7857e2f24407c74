// SPDX-License-Identifier: Apache-2.0
#include "worker/library/base/keep_freed_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <limits>

namespace ddprun {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line and a vector register; LibTorch's own

// LibTorch's own allocator calls posix_memalign(). glibc asks itself for a larger block then and
// splits it, so that the block is too small for the same request once it is freed. Here each block
// has room for the alignment, and the distance from its begin lies before the data.
class Malloc final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : Take(bytes);
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void* Take(std::size_t bytes) {
    auto* const block = bytes > std::numeric_limits<std::size_t>::max() - kAlignment
                            ? nullptr
                            : static_cast<std::byte*>(std::malloc(bytes + kAlignment));
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "no memory for a tensor of ", bytes,
                     " bytes; use smaller batches");
    // 16 at least, as malloc aligns to 16.
    const std::size_t distance = kAlignment - reinterpret_cast<std::uintptr_t>(block) % kAlignment;
    std::memcpy(block + distance - sizeof distance, &distance, sizeof distance);
    return block + distance;
  }

  static void Free(void* data) {
    if (data == nullptr) return;
    std::size_t distance = 0;
    auto* const begin = static_cast<std::byte*>(data);
    std::memcpy(&distance, begin - sizeof distance, sizeof distance);
    std::free(begin - distance);
  }
};

}  // namespace

void KeepFreedMemory() {
  // The largest M_MMAP_THRESHOLD is 32 MiB, and activations are larger.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 16 << 20);
  // Never destroyed: tensors may outlive every static object.
  static auto* const allocator = new Malloc;
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

}  // namespace ddprun

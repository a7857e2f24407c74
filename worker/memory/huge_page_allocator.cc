// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/huge_page_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>

#include "worker/memory/best_fit_allocator.h"

namespace ddprun {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 64;  // a cache line and a vector register; LibTorch's own
// glibc's greatest for M_MMAP_THRESHOLD: larger blocks are mapped and unmapped each time.
constexpr int kMallocMmapThreshold = 32 << 20;
constexpr int kMallocTopPad = 16 << 20;

std::uintptr_t Address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
void* Pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

class HugePageAllocator final : public c10::Allocator {
 public:
  // Never destroyed: tensors may outlive every static object.
  static HugePageAllocator& Get() {
    static auto* const allocator = new HugePageAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    void* data = bytes < kHugePageAllocationMin ? small_.raw_allocate(bytes) : Take(bytes);
    return {data, data, &Delete, cpu};
  }

  // One for all sizes: oneDNN's scratch is taken and given back without a DataPtr.
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  HugePageUse Use() {
    const std::lock_guard lock(mutex_);
    return {.taken_bytes = blocks_.taken_bytes(), .mapped_bytes = blocks_.range_bytes()};
  }

 private:
  HugePageAllocator() : small_(*c10::GetDefaultCPUAllocator()) {}

  static void Delete(void* data) {
    HugePageAllocator& self = Get();
    {
      const std::lock_guard lock(self.mutex_);
      if (self.blocks_.IsTaken(Address(data))) {
        self.blocks_.GiveBack(Address(data));
        return;
      }
    }
    self.small_.raw_deallocate(data);
  }

  void* Take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto begin = blocks_.Take(bytes);
    if (!begin) {
      // Sizes have changed (another batch size, evaluation): what no size fitted is given back
      // before more is taken.
      for (const auto& range : blocks_.RemoveFreeRanges()) munmap(Pointer(range.begin), range.size);
      blocks_.AddRange(MapSegment(bytes));
      begin = blocks_.Take(bytes);
    }
    return Pointer(*begin);
  }

  // Of at least `bytes`, at a multiple of the huge page's size.
  static BestFitAllocator::Range MapSegment(std::size_t bytes) {
    TORCH_CHECK(bytes < std::numeric_limits<std::size_t>::max() / 2, "a tensor of ", bytes,
                " bytes is larger than any memory; use smaller batches");
    const std::size_t wanted = std::max(bytes, kHugePageSegmentBytes);
    const std::size_t size = (wanted + kHugePage - 1) / kHugePage * kHugePage;
    // mmap() aligns to small pages only: take one huge page more and cut both ends.
    void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, mapped != MAP_FAILED, "no memory for a tensor of ", bytes,
                     " bytes: ", std::strerror(errno), "; use smaller batches");
    const std::uintptr_t from = Address(mapped);
    const std::uintptr_t begin = (from + kHugePage - 1) / kHugePage * kHugePage;
    if (begin > from) munmap(mapped, begin - from);
    if (const std::size_t rest = from + kHugePage - begin; rest > 0)
      munmap(Pointer(begin + size), rest);
    // Where the kernel has no huge pages this fails, and small ones do.
    madvise(Pointer(begin), size, MADV_HUGEPAGE);
    return {.begin = begin, .size = size};
  }

  c10::Allocator& small_;
  std::mutex mutex_;  // for what is below
  BestFitAllocator blocks_{kAlignment};
};

}  // namespace

void UseHugePageAllocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    // What does not come from here (Gloo's and the loader's buffers, small tensors).
    mallopt(M_MMAP_THRESHOLD, kMallocMmapThreshold);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    mallopt(M_TOP_PAD, kMallocTopPad);
    c10::SetCPUAllocator(&HugePageAllocator::Get(), /*priority=*/1);
  });
}

HugePageUse GetHugePageUse() { return HugePageAllocator::Get().Use(); }

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Checksums of many tensors in one launch (replicas/tensor_sums.h).
#include "worker/train/kernels/device.cuh"
#include "worker/train/kernels/summed_memory.cuh"

namespace ddprun::device::sums {

using uint64 = unsigned long long;

// The sum of the 32-bit words of memory[begin, end), `begin` a multiple of 16; zeros follow the
// last byte. As whole numbers are added, any order gives the same.
__device__ inline uint64 ChunkSum(const unsigned char* memory, int64 begin, int64 end) {
  using Words = Pack<unsigned, 4>;
  uint64 sum = 0;
  const bool aligned = reinterpret_cast<uint64>(memory) % sizeof(Words) == 0;
  const int64 packs = aligned ? (end - begin) / static_cast<int64>(sizeof(Words)) : 0;
  const auto* words = reinterpret_cast<const Words*>(memory + begin);
  for (int64 i = threadIdx.x; i < packs; i += blockDim.x) {
    const Words four = words[i];
    for (int j = 0; j < 4; ++j) sum += four.values[j];
  }
  const int64 rest = begin + packs * static_cast<int64>(sizeof(Words));
  for (int64 i = rest + threadIdx.x; i < end; i += blockDim.x)
    sum += static_cast<uint64>(memory[i]) << (8 * (i % 4));
  return sum;
}

// Each block sums up kSummedChunk bytes of one part.
__device__ inline void SumWords(const SummedMemories& memories, uint64* sums) {
  int index = 0;
  while (static_cast<int>(blockIdx.x) >= memories.block_end[index]) ++index;
  const SummedMemory& part = memories.part[index];
  const int first = index == 0 ? 0 : memories.block_end[index - 1];
  const int64 begin = (static_cast<int64>(blockIdx.x) - first) * kSummedChunk;
  const int64 end = begin + kSummedChunk < part.bytes ? begin + kSummedChunk : part.bytes;
  __shared__ uint64 all[kSummedThreads];
  all[threadIdx.x] = ChunkSum(part.memory, begin, end);
  for (unsigned half = kSummedThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part.factor * all[0];
}

}  // namespace ddprun::device::sums

// The sum of all `sums`, one for each block, is that of all parts by their factors.
extern "C" __global__ void __launch_bounds__(ddprun::device::kSummedThreads)
    sum_words(ddprun::device::SummedMemories memories, unsigned long long* sums) {
  ddprun::device::sums::SumWords(memories, sums);
}

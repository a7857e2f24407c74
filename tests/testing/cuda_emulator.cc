// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cuda_emulator.h"

#include <ucontext.h>

#include <array>
#include <bit>
#include <memory>
#include <stdexcept>

namespace ddprun::emulator {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr unsigned kThreadsMax = 1024;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  bool done = false;
};

// The threads of one block after the other, on one thread of this process.
class Block {
 public:
  // `backwards`: the last thread first. What lacks a barrier fails in one of the two orders.
  void Run(unsigned threads, bool backwards, const std::function<void()>& body);

  // Until all threads are here.
  void Synchronize() {
    moved_ = true;
    const std::uint64_t round = round_;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
      return;
    }
    while (round_ == round) SwitchToScheduler();
    moved_ = true;
  }

 private:
  static void Enter();

  void SwitchTo(Fiber& fiber) { swapcontext(&scheduler_.context, &fiber.context); }

  void SwitchToScheduler() {
    Fiber& own = fibers_[current_];
    swapcontext(&own.context, &scheduler_.context);
  }

  std::array<Fiber, kThreadsMax> fibers_;
  Fiber scheduler_;
  const std::function<void()>* body_ = nullptr;
  unsigned threads_ = 0;
  unsigned current_ = 0;
  unsigned arrived_ = 0;     // at the barrier
  std::uint64_t round_ = 0;  // of the barrier
  bool moved_ = false;       // a thread has come further
};

Block& OwnBlock() {
  static thread_local const std::unique_ptr<Block> block = std::make_unique<Block>();
  return *block;
}

void Block::Enter() {
  Block& block = OwnBlock();
  (*block.body_)();
  block.fibers_[block.current_].done = true;
  block.moved_ = true;
}

void Block::Run(unsigned threads, bool backwards, const std::function<void()>& body) {
  if (threads > kThreadsMax) throw std::logic_error("a block has at most 1024 threads");
  body_ = &body;
  threads_ = threads;
  arrived_ = 0;
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers_[i];
    if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler_.context;
    makecontext(&fiber.context, &Block::Enter, 0);
  }
  for (unsigned alive = threads; alive > 0;) {
    alive = 0;
    moved_ = false;
    for (unsigned i = 0; i < threads; ++i) {
      current_ = backwards ? threads - 1 - i : i;
      if (fibers_[current_].done) continue;
      thread_index.x = current_;
      SwitchTo(fibers_[current_]);
      if (!fibers_[current_].done) ++alive;
    }
    if (alive > 0 && !moved_)
      throw std::logic_error("threads of a block wait for others that do not come");
  }
}

}  // namespace

void RunBlock(unsigned threads, bool backwards, const std::function<void()>& body) {
  OwnBlock().Run(threads, backwards, body);
}

thread_local Index thread_index;
thread_local Index block_index;
thread_local Index block_size;
thread_local Index grid_size;

void SynchronizeBlock() { OwnBlock().Synchronize(); }

unsigned short BFloat16OfFloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

unsigned short HalfOfFloat(float value) {
  const auto sign = static_cast<unsigned>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return 0x7fff;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return static_cast<unsigned short>(sign | 0x7c00);
  // In units of the last place, which are the same below the smallest normal number.
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, -13);
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  // One that is rounded up to the next exponent carries into it.
  const unsigned bits =
      units < 1024 ? units : units - 1024 + (static_cast<unsigned>(exponent + 14) << 10);
  return static_cast<unsigned short>(sign | bits);
}

float FloatOfHalfBits(unsigned short bits) {
  const int exponent = (bits >> 10) & 31;
  const int digits = bits & 1023;
  float size = 0;
  if (exponent == 31) {
    size = digits == 0 ? HUGE_VALF : std::nanf("");
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(digits), -24);
  } else {
    size = std::ldexp(static_cast<float>(digits + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace ddprun::emulator

namespace ddprun {

std::vector<std::string> CudaEmulator::names() const {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels_) names.push_back(name);
  return names;
}

std::map<std::string, int> CudaEmulator::TakeLaunches() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(launches_, {});
}

void CudaEmulator::Launch(std::string_view name, const LaunchShape& shape,
                          std::span<const KernelArgument> arguments) {
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) throw std::out_of_range("no kernel " + std::string(name));
  const Kernel& kernel = found->second;
  if (arguments.size() != kernel.sizes.size())
    throw std::logic_error(std::string(name) + " takes " + std::to_string(kernel.sizes.size()) +
                           " arguments, not " + std::to_string(arguments.size()));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].size != kernel.sizes[i])
      throw std::logic_error("argument " + std::to_string(i) + " of " + std::string(name) +
                             " has another size");
  }
  if (shape.blocks == 0 || shape.blocks_y == 0 || shape.blocks_y > 65535 || shape.threads == 0)
    throw std::logic_error("a grid that CUDA rejects");
  {
    const std::scoped_lock lock(mutex_);
    ++launches_[found->first];
  }
  emulator::block_size = {shape.threads, 1, 1};
  emulator::grid_size = {shape.blocks, shape.blocks_y, 1};
  const std::function<void()> body = [&] { kernel.run(arguments); };
  bool backwards = false;
  for (unsigned y = 0; y < shape.blocks_y; ++y) {
    for (unsigned x = 0; x < shape.blocks; ++x) {
      emulator::block_index = {x, y, 0};
      emulator::RunBlock(shape.threads, backwards, body);
      backwards = !backwards;
    }
  }
}

}  // namespace ddprun

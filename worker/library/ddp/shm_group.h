// SPDX-License-Identifier: Apache-2.0
// The ranks of one machine, each with a piece of memory that all of them map, and the waits between
// them. Gloo would send the same bytes through the loopback device, which costs both ends two
// copies and the kernel's work.
//
// Each rank's memory is a memfd: it has no name, so nothing is left behind, however a rank ends. It
// holds a page of words (each written by its owner alone) and then the data.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddprun/detail/interrupt.h"
#include "ddprun/world.h"

namespace ddprun {

// Page size of the memory that the ranks of a machine share.
inline constexpr std::size_t kShmPageBytes = 4096;

class ShmGroup {
 public:
  // How many operations may lie between the first that a rank has announced and the last that all
  // have finished.
  static constexpr std::uint32_t kOpsMax = 1024;

  // With `bytes` of memory for each rank. Null, on all ranks, where not all of them can map each
  // other's memory: several machines, or process ids that the others do not know. All ranks must
  // call it, with the same `bytes`. A run that is to be `repeatable` must not add in another way
  // because memory or descriptors are short at one moment on some ranks: then throws
  // std::runtime_error on these, PeerError on the others.
  static std::unique_ptr<ShmGroup> Form(World& world, std::size_t bytes, bool repeatable = false);
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  int size() const;
  int rank() const { return rank_; }
  std::byte* data(int rank) const;
  std::size_t bytes() const { return bytes_; }

  // Operations are numbered from 0 by each rank in the same order. Announce() says to all that what
  // this rank gives to operation `op` lies at `offset` in its data, and Finish() that it needs the
  // others' no more. Both must be called in the order of the operations.
  void Announce(std::uint32_t op, std::uint64_t offset);
  void Finish(std::uint32_t op);

  // Wait until all ranks have done so; the first gives their offsets, by rank. Throw PeerError if
  // one has ended, if `timeout` is over, or after Stop().
  std::vector<std::uint64_t> AwaitAnnounced(std::uint32_t op, std::chrono::milliseconds timeout);
  void AwaitFinished(std::uint32_t op, std::chrono::milliseconds timeout);

  // From any thread but those that wait: whoever waits, or will, gets a PeerError at once.
  void Stop();

 private:
  struct Words;
  struct Mapping;
  using Word = std::atomic<std::uint32_t>;

  ShmGroup(int rank, std::size_t bytes);
  bool Map(World& world, const std::string& key_prefix, bool repeatable);
  void Await(std::uint32_t count, Word Words::*word, std::chrono::milliseconds timeout);
  void CheckAlive() const;

  const int rank_;
  const std::size_t bytes_;
  std::vector<Mapping> ranks_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> waiting_ = 0;  // threads of this rank
  Interrupt::Registration stopping_;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// A few bytes that each rank of a machine gives to the others in each step, beside its gradients
// and without a wait or a message of their own: written after the last forward, read after
// backward. By then every rank has announced gradients, which it does after it has written.
#pragma once

#include <cstddef>
#include <memory>

namespace ddprun {

class ShmGroup;

// DistributedDataParallel::notes() gives one, where its Options ask for it. Of one thread.
class ShmNotes {
 public:
  // Memory of each rank for notes of `bytes`.
  static constexpr std::size_t BytesFor(std::size_t bytes) { return 2 * bytes; }

  // They lie at `offset` in the node's memory.
  ShmNotes(std::shared_ptr<ShmGroup> node, std::size_t offset, std::size_t bytes);
  ~ShmNotes();
  ShmNotes(const ShmNotes&) = delete;
  ShmNotes& operator=(const ShmNotes&) = delete;

  // After a step's last forward, before this rank writes. Steps take two places in turn: who is at
  // the next but one step has gradients of all ranks for the next one, so all have read this one's.
  void BeginStep() { second_ = !second_; }

  int ranks() const;
  std::byte* own();
  const std::byte* of(int rank) const;

 private:
  std::byte* At(int rank) const;

  const std::shared_ptr<ShmGroup> node_;
  const std::size_t offset_;
  const std::size_t bytes_;
  bool second_ = true;
};

}  // namespace ddprun

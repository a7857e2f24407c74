// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/shm_notes.h"

#include <utility>

#include "worker/library/ddp/shm_group.h"

namespace ddprun {

ShmNotes::ShmNotes(std::shared_ptr<ShmGroup> node, std::size_t offset, std::size_t bytes)
    : node_(std::move(node)), offset_(offset), bytes_(bytes) {}

ShmNotes::~ShmNotes() = default;

int ShmNotes::ranks() const { return node_->size(); }

std::byte* ShmNotes::own() { return At(node_->rank()); }

const std::byte* ShmNotes::of(int rank) const { return At(rank); }

std::byte* ShmNotes::At(int rank) const {
  return node_->data(rank) + offset_ + (second_ ? bytes_ : 0);
}

}  // namespace ddprun

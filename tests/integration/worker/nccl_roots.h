// SPDX-License-Identifier: Apache-2.0
// How ProcessGroupNCCL of torch 2.11 has its ranks exchange unique IDs, without a GPU: by one root
// up to TORCH_NCCL_RANKS_PER_ROOT ranks (128), by many above. Both over the store of the group.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/library/accelerator/accelerator.h"

namespace ddprun {

using NcclId = std::vector<std::uint8_t>;

// Roots are spread evenly, and the first ranks of their parts: of 5 ranks with 2 roots 0 and 3.
// -1: `rank` is none.
inline int RootOf(int rank, int ranks, int roots) {
  const int least = ranks / roots;
  const int larger = ranks % roots;  // so many parts have one more
  const int in_larger = larger * (least + 1);
  if (rank < in_larger) return rank % (least + 1) == 0 ? rank / (least + 1) : -1;
  return (rank - in_larger) % least == 0 ? larger + (rank - in_larger) / least : -1;
}

// The first communicator of a group with `roots` roots, as `rank` sees it: what each root's ID is.
// broadcastUniqueNCCLID() sets "0" and gets it; allgatherUniqueNCCLIDs() sets "UniqueNCCLID:ROOT"
// and gets all of them at once.
inline std::vector<NcclId> ExchangeIds(c10d::Store& store, int rank, int ranks, int roots) {
  if (roots == 1) {
    if (rank == 0) store.set("0", LoadAccelerator().NcclUniqueId());
    return {store.get("0")};
  }
  std::vector<std::string> keys;
  for (int root = 0; root < roots; ++root) keys.push_back("UniqueNCCLID:" + std::to_string(root));
  const int root = RootOf(rank, ranks, roots);
  if (root >= 0) store.set(keys[static_cast<std::size_t>(root)], LoadAccelerator().NcclUniqueId());
  return store.multiGet(keys);
}

}  // namespace ddprun

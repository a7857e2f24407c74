// SPDX-License-Identifier: Apache-2.0
// A gzip file as plain bytes that all ranks of a node share: it is unpacked once into the user's
// cache and mapped from there.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun {

// How long a rank waits for another one that is unpacking the same file, before it takes memory of
// its own for it.
inline constexpr std::chrono::seconds kUnpackWaitMax{120};

// The `size` bytes that the file unpacks to. The copy lies in unpacked/ of DataCacheFolder(),
// or where that cannot be written in /dev/shm, under a name that a change of the file's size or
// modification time makes another one; it is seen whole or not at all, after gzip's own checksum
// was found right. Of ranks that begin at once one unpacks and the others wait. Where neither
// folder can be written the bytes are this process's own.
// Throws DataError "PATH: REASON; NEXT_MOVE" if the file is damaged or of another size.
at::Tensor MapUnpacked(const std::string& path, std::int64_t size, const std::string& next_move);

// Where deploy/fetch-data.sh puts data sets: data/ in DDPRUN_CACHE_DIR or in the user's cache
// folder.
std::string DataCacheFolder();

}  // namespace ddprun

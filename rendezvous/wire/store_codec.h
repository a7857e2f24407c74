// SPDX-License-Identifier: Apache-2.0
// The store's messages on an agent's socket, written and read without protobuf's objects between
// them and ours: a start asks for all ranks' keys at once, and making and freeing two strings for
// each took longer than all else. What is written is what protobuf would write, and what these
// readers do not know is left to protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/values/store_batch.h"

namespace ddprun {

// A worker's request, as a frame: StoreRequests with one request. Its round is `round`.
std::string ToRequestFrame(std::uint64_t id, RoundId round, const StoreOp& op);

// Frames with one reply, the same for each of `ids`.
std::vector<std::string> ToReplyFrames(const StoreResult& result,
                                       const std::vector<std::uint64_t>& ids);

// Reads a StoreRequests of operations. False: it has something else, or is broken.
bool ReadRequests(std::string_view message, std::vector<StoreRequest>* requests);

// Reads a StoreReplies of successes. False: it has something else, or is broken.
bool ReadReplies(std::string_view message, std::vector<StoreReply>* replies);

}  // namespace ddprun

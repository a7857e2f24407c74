// SPDX-License-Identifier: Apache-2.0
// The TCP connections of this process. Gloo cannot be told to give up: shutting its connections
// down makes all of its waits throw at once.
#pragma once

#include <sys/types.h>

#include <set>

namespace ddprun {

// By inode, which no other socket has while one of them is open, unlike a descriptor's number.
using SocketSet = std::set<ino_t>;

SocketSet ConnectedTcpSockets();

// Shuts down those that are not among `except` for reading: their owners take them for closed by
// the peer, and close them. Gloo would lose a message that it is about to write to one that is shut
// down for writing, and wait for its end.
void ShutDownTcpSockets(const SocketSet& except);

}  // namespace ddprun

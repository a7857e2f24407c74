// SPDX-License-Identifier: Apache-2.0
// Puts a FrameGuard between the decrypted bytes of each connection that this process's gRPC servers
// have, and gRPC's parser.
//
// gRPC 1.51 has no place for one, and the packages of Debian and Ubuntu have no newer gRPC. So the
// linker gives us the two functions by which gRPC makes a connection and reads from it (ld's
// --wrap, see CMakeLists.txt): with another gRPC that has them no more the program does not link.
// Where gRPC is linked as a shared library there is no guard.
#pragma once

namespace ddprun {

// Whether this program's connections have one. Called so that the linker takes what is behind it.
bool GuardsFrames();

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// If a program is started with stdin, stdout or stderr closed, the next file that it opens gets
// that descriptor. Linked into a program, this opens /dev/null there before any library is
// initialized: gRPC opens an eventfd then.
#pragma once

namespace ddprun {

// Whether all three are open; if not, errno is the reason. Call it first in main(), which also
// links this file in.
bool StandardStreamsAreOpen();

}  // namespace ddprun

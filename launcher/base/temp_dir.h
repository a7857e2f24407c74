// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// A new folder of mode 0700 for sockets and failure records, in the first of $XDG_RUNTIME_DIR,
// /tmp, $TMPDIR, /var/tmp and /dev/shm that can be written and is short enough for the path of a
// unix socket in it. UNAVAILABLE: one sentence.
absl::StatusOr<std::string> MakeTempDir();

// A new folder of mode 0700 in /dev/shm, which each program that uses NCCL has, also in a container
// with another /tmp; empty: it cannot be made.
std::string MakeSharedDir();

// A new folder of mode 0700 in $TMPDIR, /tmp or /var/tmp for logs that are wanted and have no
// folder; it stays. UNAVAILABLE: one sentence.
absl::StatusOr<std::string> MakeLogDir();

// Makes the folder again if it was removed while the run goes on (a cleaner of /tmp). UNAVAILABLE:
// it cannot be made, or it is another user's by now.
absl::Status RestoreTempDir(const std::string& path);

// With all that is in it; a folder that is gone already is no error.
void RemoveTempDir(const std::string& path);

}  // namespace ddprun

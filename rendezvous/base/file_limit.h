// SPDX-License-Identifier: Apache-2.0
// How many files a process may have: a service needs one for each node, and a shell allows 1024.
#pragma once

namespace ddprun {

// Raises this process's limit as far as its user may. Inherited by what it starts, where that is
// not set back: programs that use select() cannot stand many files.
void RaiseFileLimit();

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// ddprun-rendezvous: the rendezvous service alone. The program ddprun is it as well, under that
// name.
#pragma once

namespace ddprun {

// With the arguments of main().
int ServiceProgram(int argc, char** argv);

}  // namespace ddprun

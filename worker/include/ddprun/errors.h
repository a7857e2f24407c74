// SPDX-License-Identifier: Apache-2.0
// What the library throws. All of them are std::runtime_errors whose text is one sentence.
// std::invalid_argument and c10::Error come beside them: an argument that cannot be, and what
// LibTorch throws.
#pragma once

#include <stdexcept>
#include <string>

namespace ddprun {

// Another rank has ended, or does not come, or is late. Ends the round, not this process, where the
// launcher keeps it.
struct PeerError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The round of this rank is over because another rank has ended: not an error of the training. Let
// it through to Main(), which enters the next round.
struct RoundOver : std::runtime_error {
  RoundOver() : std::runtime_error("the round is over") {}
};

// This rank's own: settings, data, a loss that is not finite. No new round would cure it.
struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A checkpoint is damaged, of another format or another training, or cannot be read or written; the
// sentence names it.
struct CheckpointError : OwnError {
  using OwnError::OwnError;
};

}  // namespace ddprun

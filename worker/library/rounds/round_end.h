// SPDX-License-Identifier: Apache-2.0
// Whether an exception ends the process or only its round, in which case the process goes on in the
// next one.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "worker/library/rounds/round_listener.h"

namespace ddprun {

enum class Cause {
  kOwn,    // of this rank's own: settings, data, memory, a loss that is not finite, a signal
  kPeer,   // it says that another rank was gone
  kOther,  // anything else; of the round if that is over
};
Cause CauseOf(const std::exception_ptr& error);

// Whether the round alone has ended. If a peer is gone and the agent does not say so within a short
// time, this rank leaves the round by itself; `by_itself` is set then. `place`: the collective that
// failed, where it is known.
bool EndsRoundOnly(const std::exception_ptr& error, RoundListener& listener, bool& by_itself,
                   std::optional<CollectivePlace> place = std::nullopt);

}  // namespace ddprun

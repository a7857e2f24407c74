// SPDX-License-Identifier: Apache-2.0
// Parts of ddpctl web.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "launcher/ctl/ctl_options.h"
#include "launcher/ctl/events_text.h"
#include "launcher/ctl/watch_signals.h"
#include "launcher/web/web_state.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// The time, in milliseconds since 1970.
std::int64_t UnixMs();

// What `ddpctl why` says, and the events.
void AddFacts(const RunFacts& facts, WebState& state);

// What the folder of a detached run has recorded of its state.
void AddSamples(const std::string& folder, WebState& state);

// The curves of options.compare. NOT_FOUND: one of these runs is not known, or nothing is recorded
// of it.
absl::Status AddOthers(const CtlOptions& options, WebState& state);

// Serves the page of a run until Ctrl-C. Prints its address. `folder` empty: nothing is recorded.
// The exit code.
int ServePage(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
              const std::string& run_id, const std::string& folder, WatchSignals& signals);

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// The flags of ddprun by subject: for each a table for --help and a reader. Pure. A reader that
// finds a wrong value leaves its sentence in `reader`.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/options/options.h"

namespace ddprun {

// ---- What of the machine each worker gets

// torchrun's word for it, as --numa-binding takes it.
std::string NumaBindingName(NumaBinding mode);
extern const std::vector<Flag> kAffinityFlags;
AffinityOptions ReadAffinityOptions(Reader& reader);

// ---- `ddprun doctor`, which takes the flags of a run too

extern const std::vector<Flag> kDoctorFlags;
DoctorOptions ReadDoctorOptions(Reader& reader);
// With `flags` of a run that a person may want to see there.
std::string DoctorHelp(const std::vector<Flag>& flags);

// ---- Workers that live and make no progress

extern const std::vector<Flag> kHangFlags;
HangOptions ReadHangOptions(Reader& reader);

// ---- Every node of a run started by one command

extern const std::vector<Flag> kHostFlags;
// Also what contradicts the other flags.
HostOptions ReadHostOptions(Reader& reader, const Values& values);

// ---- The output of the workers

extern const std::vector<Flag> kLogFlags;
// torchrun knows a default of --log-line-prefix-template that is called otherwise than PET_*.
void AddLogVariables(const GetVariable& get_variable, Values& values);
LogOptions ReadLogOptions(Reader& reader);

// ---- Events and metrics of a run while it lasts

extern const std::vector<Flag> kObserveFlags;
ObserveOptions ReadObserveOptions(Reader& reader);

// ---- What follows a failure

extern const std::vector<Flag> kRestartFlags;
RestartOptions ReadRestartOptions(Reader& reader);

// ---- How workers are stopped

extern const std::vector<Flag> kStopFlags;
StopOptions ReadStopOptions(Reader& reader);
// How long a node with these may take from the word to stop to its last process's end.
std::chrono::milliseconds StopTimeout(const StopOptions& options);

// ---- Flags of torchrun that have no effect, or are refused

extern const std::vector<Flag> kTorchrunFlags;
TorchrunOptions ReadTorchrunOptions(Reader& reader);

// ---- The report at the end of a run

extern const std::vector<Flag> kVerdictFlags;
VerdictOptions ReadVerdictOptions(Reader& reader);

}  // namespace ddprun

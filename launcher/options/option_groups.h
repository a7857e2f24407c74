// SPDX-License-Identifier: Apache-2.0
// The flags of ddprun by subject: for each a table for --help and a reader. Pure. A function that
// reads an invalid value reports it to `reader`.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/options/options.h"

namespace ddprun {

// ---- CPUs and GPUs of the workers

// The value of --numa-binding, as in torchrun.
std::string NumaBindingName(NumaBinding mode);
extern const std::vector<Flag> kAffinityFlags;
AffinityOptions ReadAffinityOptions(Reader& reader);

// ---- `ddprun doctor`, which accepts the flags of a run too

extern const std::vector<Flag> kDoctorFlags;
DoctorOptions ReadDoctorOptions(Reader& reader);
// `flags`: those of a run to show as well.
std::string DoctorHelp(const std::vector<Flag>& flags);

// ---- Hung workers

extern const std::vector<Flag> kHangFlags;
HangOptions ReadHangOptions(Reader& reader);

// ---- Starting all nodes with one command

extern const std::vector<Flag> kHostFlags;
// Also rejects contradicting flags.
HostOptions ReadHostOptions(Reader& reader, const Values& values);

// ---- The output of the workers

extern const std::vector<Flag> kLogFlags;
// torchrun's variable for --log-line-prefix-template is not called PET_*.
void AddLogVariables(const GetVariable& get_variable, Values& values);
LogOptions ReadLogOptions(Reader& reader);

// ---- Events and metrics of a run

extern const std::vector<Flag> kObserveFlags;
ObserveOptions ReadObserveOptions(Reader& reader);

// ---- Restarts

extern const std::vector<Flag> kRestartFlags;
RestartOptions ReadRestartOptions(Reader& reader);

// ---- Stopping workers

extern const std::vector<Flag> kStopFlags;
StopOptions ReadStopOptions(Reader& reader);
// The longest time between the order to stop and the end of a node's last process.
std::chrono::milliseconds StopTimeout(const StopOptions& options);
// That the head of a run orders a node to stop with: SIGTERM, unless it is a notice there.
int StopSignal(const StopOptions& options);

// ---- Flags of torchrun without effect, or rejected

extern const std::vector<Flag> kTorchrunFlags;
TorchrunOptions ReadTorchrunOptions(Reader& reader);

// ---- Single workers: their flags are in command_line/parse_options.cc

std::vector<WorkerWrap> ReadWraps(Reader& reader);
WorkerStdin ReadWorkerStdin(Reader& reader);

// ---- The final report of a run

extern const std::vector<Flag> kVerdictFlags;
VerdictOptions ReadVerdictOptions(Reader& reader);

}  // namespace ddprun

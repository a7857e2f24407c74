// SPDX-License-Identifier: Apache-2.0
// The commands of ddpctl, and `ddprun status`: each queries a rendezvous service and prints the
// reply.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/ctl/ctl_options.h"
#include "launcher/ctl/events_text.h"
#include "launcher/ctl/watch_signals.h"
#include "launcher/runs/run_record.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/client/watch_client.h"

namespace ddprun {

// The screen of ddpctl top, which ncurses is linked for: in ddpctl alone.
using CtlScreen = int (*)(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
                          WatchSignals& signals);

// The program ddpctl, with the arguments of main(). `screen` null: as in RunCtl().
int CtlProgram(int argc, char** argv, CtlScreen screen);

// `arguments` from the command's name on. `program`: for messages. `screen` null: there is none.
// The exit code.
int RunCtl(const std::vector<std::string>& arguments, const std::string& program,
           CtlScreen screen = nullptr);

// `ddprun status`: `arguments` after its name. With --watch on a terminal it becomes ddpctl.
int StatusCommand(std::vector<std::string> arguments);

// Prints why a command of ddpctl has failed, on stderr; `why` may hold words of other machines. The
// exit code.
int CtlFailed(const absl::Status& why);

// ddpctl logs: prints the lines so far, with -f until the run ends. Prints errors on stderr. The
// exit code.
int ShowLogs(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);
// Of a detached run that has ended, likewise.
int ShowPastLogs(const CtlOptions& options, const std::string& folder);

// ddpctl runs. The exit code.
int ShowRuns(const CtlOptions& options);

// ddpctl stop, for a detached run that has no service yet, or none that can be asked: as if its
// ddprun had got SIGTERM, with --now a second signal at once. The exit code.
int StopDetached(const CtlOptions& options, const RunRecord& run);

// ddpctl events, while the run goes on and afterwards; `folder`: of a detached run. Print errors on
// stderr. The exit code.
int ShowEvents(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);
int ShowPastEvents(const CtlOptions& options, const std::string& folder);
// ddpctl why, likewise.
int ShowWhy(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);
int ShowPastWhy(const CtlOptions& options, const KnownRun& run, const std::string& folder);
int ShowWhyOfFile(const CtlOptions& options);

// What is known about a run that goes on, or about a past one.
absl::StatusOr<RunFacts> FactsOf(const CtlOptions& options,
                                 const std::shared_ptr<ServiceChannel>& channel);
RunFacts PastFacts(const KnownRun& run, const std::string& folder);

// ddpctl web, likewise; `folder` empty: the run is not a detached one.
int ShowPage(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
             const std::string& folder, WatchSignals& signals);
int SavePastPage(const CtlOptions& options, const KnownRun& run, const std::string& folder);

// ddpctl capsule and replay. Print errors on stderr. The exit code.
int MakeCapsule(const CtlOptions& options);
int ShowReplay(const CtlOptions& options);

// ddpctl attach: shows the output of a detached run until it ends or Ctrl-C. Prints errors on
// stderr. The exit code: the run's, or 0 after Ctrl-C.
int Attach(const CtlOptions& options);
// Its other end, on the machine of the run (runs/attach_stream.h).
int ServeAttach(const CtlOptions& options);

// ddpctl stop --wait: subscribes to the end of the run. Returns when the subscription is active, so
// that no later event is missed. Errors: as RunWatch::Next().
struct EndWatch {
  std::unique_ptr<RunWatch> watch;
  std::string run_id;
};
absl::StatusOr<EndWatch> WatchEnd(const CtlOptions& options,
                                  const std::shared_ptr<ServiceChannel>& channel);

// DEADLINE_EXCEEDED: the run has not ended within options.wait_timeout.
absl::StatusOr<RunOver> WaitForEnd(const CtlOptions& options, EndWatch& end);

// The run that a command is about. INVALID_ARGUMENT: there is none, or there are several.
absl::StatusOr<RunStatus> TheRun(const CtlOptions& options,
                                 const std::shared_ptr<ServiceChannel>& channel);

// ddpctl stacks: asks one worker after another. Prints errors on stderr. The exit code: 1 if one of
// them could not be asked.
absl::StatusOr<FaultReport> StacksOf(const CtlOptions& options,
                                     const std::shared_ptr<ServiceChannel>& channel,
                                     const std::string& run_id, int rank);
std::vector<std::string> StackLines(const FaultReport& stacks);
int ShowStacks(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);

// ddpctl chaos: asks for a yes, injects faults until its end, prints the report. The exit code.
int RunChaos(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);

// ddpctl top and status --watch without a screen: polls the service and prints the status as lines
// when it changes, until Ctrl-C or SIGTERM, or the service is gone. The exit code: 1 if the service
// was never reached.
int WatchStatus(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
                WatchSignals& signals);

// "12:34:56", of this machine's time zone.
std::string ClockText();

}  // namespace ddprun

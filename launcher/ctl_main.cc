// SPDX-License-Identifier: Apache-2.0
// ddpctl: looks after runs from the outside. A program of its own beside ddprun, so that a run's
// program may be called stop or logs.
#include "launcher/ctl/ctl_command.h"
#include "rendezvous/process/standard_streams.h"
#include "rendezvous/process/thread_check.h"

int main(int argc, char** argv) {
  if (!ddprun::StandardStreamsAreOpen()) return 1;
  ddprun::ExplainThreadFailures("ddpctl");
  return ddprun::RunCtl(std::vector<std::string>(argv + 1, argv + argc), "ddpctl");
}

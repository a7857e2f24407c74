// SPDX-License-Identifier: Apache-2.0
// ddpctl: looks after runs from the outside. A program of its own beside ddprun, so that a run's
// program may be called stop or logs.
#include <cstdio>

#include "launcher/ctl/ctl_command.h"
#include "rendezvous/base/process_limits.h"
#include "rendezvous/base/standard_streams.h"
#include "rendezvous/base/thread_check.h"

int main(int argc, char** argv) {
  if (!ddprun::StandardStreamsAreOpen()) return 1;
  ddprun::ExplainThreadFailures("ddpctl");
  if (const std::string problem = ddprun::WhyNoThreads(); !problem.empty()) {
    std::fprintf(stderr, "ddpctl: %s\n", problem.c_str());
    return 1;
  }
  return ddprun::RunCtl(std::vector<std::string>(argv + 1, argv + argc), "ddpctl");
}

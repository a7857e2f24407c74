// SPDX-License-Identifier: Apache-2.0
// ddpctl: looks after runs from the outside. A program of its own beside ddprun, so that a run's
// program may be called stop or logs.
#include "launcher/ctl/ctl_command.h"
#include "launcher/top/top_command.h"

int main(int argc, char** argv) { return ddprun::CtlProgram(argc, argv, ddprun::ShowTop); }

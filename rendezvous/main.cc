// SPDX-License-Identifier: Apache-2.0
// ddprun-rendezvous: the rendezvous service alone.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "proto/version.h"
#include "rendezvous/command_line.h"
#include "rendezvous/server.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "ddprun-rendezvous: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// The signals are blocked before the first thread is started, so that all threads have them blocked
// and this one alone takes them.
int Serve(const ddprun::ServiceCommand& command) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto server = ddprun::RendezvousServer::Start(
      {.address = command.host, .port = command.port, .default_run_id = command.run_id});
  if (!server.ok()) {
    return Complain(server.status(),
                    absl::IsInvalidArgument(server.status()) ? kExitUsage : kExitFailure);
  }
  std::printf("listening on %s\n", (*server)->target().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto command = ddprun::ParseServiceCommand(std::vector<std::string>(argv + 1, argv + argc));
  if (!command.ok()) return Complain(command.status(), kExitUsage);
  switch (command->action) {
    case ddprun::ServiceCommand::Action::kHelp:
      std::printf("%s", ddprun::kServiceUsage);
      return 0;
    case ddprun::ServiceCommand::Action::kVersion:
      std::printf("ddprun-rendezvous %s\n", ddprun::kSoftwareVersion);
      return 0;
    case ddprun::ServiceCommand::Action::kServe:
      return Serve(*command);
  }
  return kExitFailure;
}

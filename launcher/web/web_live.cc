// SPDX-License-Identifier: Apache-2.0
// ddpctl web of a run that goes on: a page at an address of this machine.
#include <poll.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/web/run_page.h"
#include "launcher/web/web_command.h"

namespace ddprun {

int ServePage(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
              const std::string& run_id, const std::string& folder, WatchSignals& signals) {
  const auto page = RunPage::Start(options, channel, run_id, [&](WebState& state) {
    if (!folder.empty()) AddSamples(folder, state);
    return AddOthers(options, state);
  });
  if (!page.ok()) return CtlFailed(page.status());
  if (Show(absl::StrCat((*page)->Url(), "\n")) != 0) return 1;
  std::fprintf(stderr,
               "ddpctl: the page of run %s is there until Ctrl-C; from another machine: %s\n",
               run_id.c_str(), (*page)->Tunnel().c_str());
  pollfd fd = {signals.fd(), POLLIN, 0};
  while (poll(&fd, 1, -1) < 0 || signals.Take() != WatchSignals::Action::kEnd) {
  }
  return 0;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// The page of a run that goes on, at an address of this machine: what ddpctl web serves, and
// ddprun --web in the process of the service.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/ctl/ctl_options.h"
#include "launcher/web/web_pages.h"
#include "launcher/web/web_state.h"
#include "rendezvous/observe/web_server.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

struct LivePage;

class RunPage {
 public:
  // Of `options` the run, the port and what concerns the page. `begin`: what is known of the run
  // already. An error of it, or UNAVAILABLE or RESOURCE_EXHAUSTED: one sentence.
  static absl::StatusOr<std::unique_ptr<RunPage>> Start(
      const CtlOptions& options, std::shared_ptr<ServiceChannel> channel, const std::string& run_id,
      const std::function<absl::Status(WebState&)>& begin);
  // Ends all streams.
  ~RunPage();

  // With the token that lets in.
  std::string Url() const;
  // The command by which another machine reaches it.
  std::string Tunnel() const;
  // Waits for at most `timeout` until pages that are open say how the run has ended; not at all
  // where none is.
  void TellEnd(std::chrono::milliseconds timeout);

 private:
  RunPage(std::shared_ptr<LivePage> live, std::string token, WebPages::Control control);

  const std::shared_ptr<LivePage> live_;
  const std::string token_;
  const WebPages pages_;
  std::unique_ptr<WebServer> server_;  // last: its threads use the members above
};

}  // namespace ddprun

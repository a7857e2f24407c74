// SPDX-License-Identifier: Apache-2.0
// What `ddpctl top` asks a service, each question in a thread of its own, so that keys never wait
// for an answer. Every question has a deadline, or is asked in short turns.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/ctl/ctl_options.h"
#include "launcher/top/top_state.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

class TopInbox;

class TopFeed {
 public:
  // Asks for the status every options.interval from here on.
  TopFeed(const CtlOptions& options, std::shared_ptr<ServiceChannel> channel);
  // Questions that have no answer yet are left alone.
  ~TopFeed();

  // Readable when Take() has news.
  int fd() const;
  std::vector<TopNews> Take();

  // Does not wait. A sentence: it cannot be asked now.
  std::optional<std::string> Perform(const TopEffect& effect);

 private:
  template <typename Question>
  std::optional<std::string> Ask(Question question);

  const CtlOptions options_;
  const std::shared_ptr<ServiceChannel> channel_;
  const std::shared_ptr<TopInbox> inbox_;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/top_command.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/top/top_feed.h"
#include "launcher/top/top_state.h"
#include "launcher/top/top_terminal.h"
#include "launcher/top/top_view.h"

namespace ddprun {
namespace {

// The heading's clock goes on without news.
constexpr int kRedrawMs = 1000;

class TopLoop {
 public:
  TopLoop(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
          WatchSignals& signals, TopTerminal& terminal)
      : service_(TargetOf(options.service)),
        terminal_(terminal),
        signals_(signals),
        feed_(options, channel) {}

  int Run() {
    bool keys = isatty(STDIN_FILENO) == 1;
    while (!ended_) {
      terminal_.Draw(DrawTop(top_, absl::StrCat("ddpctl top  ", service_, "  ", ClockText()),
                             terminal_.size(), terminal_.utf8()));
      pollfd fds[] = {{signals_.fd(), POLLIN, 0},
                      {feed_.fd(), POLLIN, 0},
                      {keys ? STDIN_FILENO : -1, POLLIN, 0}};
      if (poll(fds, std::size(fds), kRedrawMs) <= 0) continue;
      if (fds[0].revents != 0) TakeSignal();
      if (fds[1].revents != 0) TakeNews();
      if ((fds[2].revents & POLLIN) != 0) TakeKeys();
      if ((fds[2].revents & (POLLHUP | POLLERR)) != 0) keys = false;
    }
    return reached_ ? 0 : 1;
  }

 private:
  void TakeSignal() {
    using Action = WatchSignals::Action;
    const std::optional<Action> action = signals_.Take();
    if (action == Action::kResize) terminal_.Resize();
    if (action == Action::kSuspend) terminal_.Suspend();
    ended_ = ended_ || action == Action::kEnd;
  }

  void TakeNews() {
    for (TopNews& news : feed_.Take()) {
      reached_ = reached_ || std::holds_alternative<StatusCame>(news);
      Perform(top_.On(std::move(news)));
    }
  }

  void TakeKeys() {
    for (const TopKey key : terminal_.TakeKeys())
      Perform(top_.OnKey(key, PageOf(top_, terminal_.size())));
  }

  void Perform(const TopEffects& effects) {
    for (const TopEffect& effect : effects) {
      ended_ = ended_ || std::holds_alternative<EndTop>(effect);
      if (auto sentence = feed_.Perform(effect)) top_.On(AnswerCame{*std::move(sentence)});
    }
  }

  const std::string service_;
  TopTerminal& terminal_;
  WatchSignals& signals_;
  TopFeed feed_;
  Top top_;
  bool reached_ = false;
  bool ended_ = false;
};

}  // namespace

int ShowTop(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
            WatchSignals& signals) {
  auto terminal = TopTerminal::Open();
  if (!terminal.ok()) {
    std::fprintf(stderr, "ddpctl: %s; lines are printed instead\n",
                 std::string(terminal.status().message()).c_str());
    return WatchStatus(options, channel, signals);
  }
  const int exit_code = TopLoop(options, channel, signals, **terminal).Run();
  terminal->reset();
  // A thread may wait for an answer for as long as its deadline allows.
  std::_Exit(exit_code);
}

}  // namespace ddprun

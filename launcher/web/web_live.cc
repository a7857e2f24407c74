// SPDX-License-Identifier: Apache-2.0
// ddpctl web of a run that goes on: a page at an address of this machine.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/events_text.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/node/network.h"
#include "launcher/runs/run_sample.h"
#include "launcher/web/web_command.h"
#include "launcher/web/web_hub.h"
#include "launcher/web/web_pages.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/client/watch_client.h"
#include "rendezvous/observe/web_server.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// `ddpctl why` is asked when the run's phase has changed, and after so many polls.
constexpr int kPollsWithoutWhyMax = 5;

// Shared by the threads, which may wait for an answer when the command ends.
struct LivePage {
  LivePage(const CtlOptions& its_options, std::shared_ptr<ServiceChannel> its_channel,
           const std::string& its_run)
      : options(its_options),
        channel(std::move(its_channel)),
        run(its_run),
        hub(its_run, its_options.web_control) {}

  const CtlOptions options;
  const std::shared_ptr<ServiceChannel> channel;
  const std::string run;
  WebHub hub;
  std::atomic<bool> over{false};   // the run is
  std::atomic<bool> ended{false};  // the command is
};

void PollStatus(LivePage& page) {
  std::tuple<RunPhase, decltype(RunStatus::round), std::string> explained;
  int polls = 0;
  while (!page.ended && !page.over) {
    const TimePoint begun = Clock::now();
    const auto status = GetStatus(page.channel, page.run, page.options.timeout, true);
    if (!status.ok() || status->runs.size() != 1) {
      const std::string why = status.ok() ? "" : std::string(status.status().message());
      if (!page.over) {
        page.hub.Change([&](WebState& state) {
          state.OnRun({{"state", "not reached"}, {"why", why}});
        });
      }
      polls = 0;
    } else {
      const RunStatus& run = status->runs.front();
      std::tuple now{run.phase, run.round, run.reason};
      if (polls-- <= 0 || now != explained) {
        if (const auto facts = FactsOf(page.options, page.channel); facts.ok() && !page.over) {
          page.hub.Change([&](WebState& state) { AddFacts(*facts, state); });
          explained = std::move(now);
          polls = kPollsWithoutWhyMax;
        }
      }
      page.hub.Change([&](WebState& state) { state.OnSample(SampleOf(run, UnixMs())); });
    }
    page.hub.Publish();
    std::this_thread::sleep_until(begun + kWebPollInterval);
  }
}

void Take(const RunNews& news, LivePage& page) {
  page.hub.Change([&](WebState& state) {
    if (const auto* said = std::get_if<WorkerLines>(&news)) {
      for (const LogLine& line : said->lines.lines)
        state.OnLine(absl::StrCat(line.prefix, line.text));
    } else if (const auto* line = std::get_if<RunEventLine>(&news)) {
      if (const auto event = ParseEvent(line->json))
        state.OnEvent(line->json, *event, EventWords(*event));
    } else if (const auto* end = std::get_if<RunOver>(&news)) {
      state.OnRun({{"state", "over"}, {"why", EndSentence(page.run, *end)}});
      page.over = true;
    }
  });
}

void WatchRun(LivePage& page) {
  RunQuestion question;
  question.output = true;
  question.events = true;
  question.watch = {
      .lines = kWebFirstLines, .follow = true, .ranks = {{0, kWebOutputRanksMax - 1}}};
  while (!page.ended && !page.over) {
    const auto watch = RunWatch::Open(page.channel, page.run, question);
    TimePoint published{};
    while (!page.ended && !page.over) {
      const auto news = watch->Next(Clock::now() + kWebGatherTime);
      if (!news.ok()) break;
      if (news->has_value()) Take(**news, page);
      if (news->has_value() && Clock::now() - published < kWebGatherTime) continue;
      page.hub.Publish();
      published = Clock::now();
    }
    page.hub.Publish();
    question.watch.lines = 0;  // those from before were shown
    if (!page.over) std::this_thread::sleep_for(kWebPollInterval);
  }
}

WebPages::Control ControlOf(const std::shared_ptr<LivePage>& page) {
  if (!page->options.web_control) return {};
  return {.stop =
              [page] {
                return StopRun(page->channel, page->run, {.by = HostName()}, page->options.timeout);
              },
          .drain =
              [page](const std::string& node) {
                return DrainNode(page->channel, page->run, {.by = HostName(), .node = node},
                                 page->options.timeout);
              }};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "ddpctl: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int ServePage(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
              const std::string& run_id, const std::string& folder, WatchSignals& signals) {
  const auto page = std::make_shared<LivePage>(options, channel, run_id);
  if (!folder.empty()) page->hub.Change([&folder](WebState& state) { AddSamples(folder, state); });
  const absl::StatusOr<std::string> token = RandomDigits();
  if (!token.ok()) return Fail(token.status());
  const WebPages pages(*token, page->hub, ControlOf(page));
  const auto server = StartWebServer(
      options.port,
      [&pages](const WebRequest& request, WebReply& reply) { pages.Answer(request, reply); });
  if (!server.ok()) return Fail(server.status());
  for (void (*const watch)(LivePage&) : {PollStatus, WatchRun}) {
    if (RunDetached([page, watch] { watch(*page); }))
      return Fail(absl::ResourceExhaustedError("no thread can be started: see ulimit -u"));
  }
  const int port = (*server)->port();
  if (Show(absl::StrCat("http://127.0.0.1:", port, "/?token=", *token, "\n")) != 0) return 1;
  std::fprintf(stderr,
               "ddpctl: the page of run %s is there until Ctrl-C; from another machine: ssh -L "
               "%d:127.0.0.1:%d %s\n",
               run_id.c_str(), port, port, HostName().c_str());
  pollfd fd = {signals.fd(), POLLIN, 0};
  while (poll(&fd, 1, -1) < 0 || signals.Take() != WatchSignals::Action::kEnd) {
  }
  page->ended = true;
  page->hub.End();
  return 0;
}

}  // namespace ddprun

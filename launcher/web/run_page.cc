// SPDX-License-Identifier: Apache-2.0
#include "launcher/web/run_page.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/events_text.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/node/network.h"
#include "launcher/runs/run_sample.h"
#include "launcher/web/web_command.h"
#include "launcher/web/web_hub.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/client/watch_client.h"

namespace ddprun {

// Shared by the threads, which may wait for an answer when the page ends.
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
  std::atomic<bool> over{false};   // the run is; set in a Change(), after which no other news count
  absl::Notification told;         // all pages that are open say so
  std::atomic<bool> ended{false};  // the page is
};

namespace {

using Clock = std::chrono::steady_clock;

// `ddpctl why` is asked when the run's phase has changed, and after so many polls.
constexpr int kPollsWithoutWhyMax = 5;

void PollStatus(LivePage& page) {
  std::tuple<RunPhase, decltype(RunStatus::round), std::string> explained;
  int polls = 0;
  while (!page.ended && !page.over) {
    const TimePoint begun = Clock::now();
    const auto status = GetStatus(page.channel, page.run, page.options.timeout, true);
    if (!status.ok() || status->runs.size() != 1) {
      const std::string why = status.ok() ? "" : std::string(status.status().message());
      page.hub.Change([&](WebState& state) {
        if (!page.over) state.OnRun({{"state", "not reached"}, {"why", why}});
      });
      polls = 0;
    } else {
      const RunStatus& run = status->runs.front();
      std::tuple now{run.phase, run.round, run.reason};
      if (polls-- <= 0 || now != explained) {
        if (const auto facts = FactsOf(page.options, page.channel); facts.ok()) {
          page.hub.Change([&](WebState& state) {
            if (!page.over) AddFacts(*facts, state);
          });
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
      // Those from before are shown once. A run whose nodes have not joined yet has none.
      if (news->has_value() && std::holds_alternative<WorkerLines>(**news))
        question.watch.lines = 0;
      if (news->has_value() && Clock::now() - published < kWebGatherTime) continue;
      page.hub.Publish();
      published = Clock::now();
    }
    page.hub.Publish();
    if (page.over) page.told.Notify();
    if (!page.over) std::this_thread::sleep_for(kWebGatherTime);
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

}  // namespace

absl::StatusOr<std::unique_ptr<RunPage>> RunPage::Start(
    const CtlOptions& options, std::shared_ptr<ServiceChannel> channel, const std::string& run_id,
    const std::function<absl::Status(WebState&)>& begin) {
  const auto live = std::make_shared<LivePage>(options, std::move(channel), run_id);
  absl::Status begun;
  live->hub.Change([&](WebState& state) { begun = begin(state); });
  if (!begun.ok()) return begun;
  absl::StatusOr<std::string> token = RandomDigits();
  if (!token.ok()) return token.status();
  std::unique_ptr<RunPage> page(new RunPage(live, *std::move(token), ControlOf(live)));
  const WebPages& pages = page->pages_;
  auto server = StartWebServer(options.port, [&pages](const WebRequest& request, WebReply& reply) {
    pages.Answer(request, reply);
  });
  if (!server.ok()) return server.status();
  page->server_ = *std::move(server);
  for (void (*const watch)(LivePage&) : {PollStatus, WatchRun}) {
    if (RunDetached([live, watch] { watch(*live); }))
      return absl::ResourceExhaustedError("no thread can be started: see ulimit -u");
  }
  return page;
}

RunPage::RunPage(std::shared_ptr<LivePage> live, std::string token, WebPages::Control control)
    : live_(std::move(live)),
      token_(std::move(token)),
      pages_(token_, live_->hub, std::move(control)) {}

RunPage::~RunPage() {
  live_->ended = true;
  // Before the server ends: CivetWeb writes nothing from then on.
  live_->hub.End(kWebEndTimeout);
}

void RunPage::TellEnd(std::chrono::milliseconds timeout) {
  if (!live_->hub.HasFollowers()) return;
  live_->told.WaitForNotificationWithTimeout(absl::FromChrono(timeout));
}

std::string RunPage::Url() const {
  return absl::StrCat("http://127.0.0.1:", server_->port(), "/?token=", token_);
}

std::string RunPage::Tunnel() const {
  const int port = server_->port();
  return absl::StrCat("ssh -L ", port, ":127.0.0.1:", port, " ", HostName());
}

}  // namespace ddprun

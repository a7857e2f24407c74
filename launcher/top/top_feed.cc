// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/top_feed.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/events_text.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/node/network.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/client/watch_client.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A question that has no deadline looks so often whether its answer is still wanted.
constexpr milliseconds kTurn{200};
constexpr milliseconds kWatchAgain{1000};

std::string SentenceOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

// What the threads have heard, and what is still wanted of them.
class TopInbox {
 public:
  TopInbox() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  int fd() const { return fd_.get(); }

  // Waits while there is much that was not taken: the service counts what it cannot send meanwhile.
  void Push(TopNews news) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &TopInbox::HasRoom));
    news_.push_back(std::move(news));
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
  }
  std::vector<TopNews> Take() {
    absl::MutexLock lock(&mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof(count));
    return std::exchange(news_, {});
  }

  void End() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  // False: it has ended.
  bool Sleep(milliseconds time) {
    absl::MutexLock lock(&mutex_);
    return !mutex_.AwaitWithTimeout(absl::Condition(&ended_), absl::FromChrono(time));
  }

  // False: too many of them have no answer yet.
  bool BeginQuestion() {
    absl::MutexLock lock(&mutex_);
    if (questions_ >= kTopQuestionsMax) return false;
    ++questions_;
    return true;
  }
  void EndQuestion() {
    absl::MutexLock lock(&mutex_);
    --questions_;
  }

  // One run is watched and one text is shown at a time; a later one takes its place.
  int BeginWatch() {
    absl::MutexLock lock(&mutex_);
    return ++watch_;
  }
  bool WantsWatch(int number) {
    absl::MutexLock lock(&mutex_);
    return !ended_ && watch_ == number;
  }
  void SetText(int number) {
    absl::MutexLock lock(&mutex_);
    text_ = number;
  }
  bool WantsText(int number) {
    absl::MutexLock lock(&mutex_);
    return !ended_ && text_ == number;
  }

 private:
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_ || news_.size() < kTopNewsMax;
  }

  const OwnedFd fd_;
  absl::Mutex mutex_;
  std::vector<TopNews> news_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int questions_ ABSL_GUARDED_BY(mutex_) = 0;
  int watch_ ABSL_GUARDED_BY(mutex_) = 0;
  int text_ ABSL_GUARDED_BY(mutex_) = 0;
};

namespace {

using Channel = std::shared_ptr<ServiceChannel>;

void PollStatus(const CtlOptions& options, const Channel& channel, TopInbox& inbox) {
  const milliseconds interval = std::max(options.interval, milliseconds(kTopIntervalMin));
  do {
    auto status = GetStatus(channel, options.run_id, options.timeout, true);
    if (status.ok()) {
      inbox.Push(StatusCame{*std::move(status)});
    } else {
      inbox.Push(StatusFailed{SentenceOf(status.status())});
    }
  } while (inbox.Sleep(interval));
}

// Events from before come first, and once, however often the connection breaks.
void WatchRun(const Channel& channel, const std::string& run_id, int number, TopInbox& inbox) {
  RunQuestion question;
  question.events = true;
  question.watch.follow = true;
  std::int64_t last = 0;
  while (inbox.WantsWatch(number)) {
    const auto watch = RunWatch::Open(channel, run_id, question);
    while (inbox.WantsWatch(number)) {
      const auto news = watch->Next(Clock::now() + kTurn);
      if (!news.ok()) break;
      if (!news->has_value()) continue;
      if (std::holds_alternative<RunOver>(**news)) return;
      // A service of an older version sends words.
      if (const auto* words = std::get_if<RunWords>(&**news))
        inbox.Push(EventCame{absl::StrCat(ClockText(), "  ", words->text)});
      const auto* const line = std::get_if<RunEventLine>(&**news);
      const auto event = line != nullptr ? ParseEvent(line->json) : std::nullopt;
      if (!event || event->value("number", std::int64_t{0}) <= last) continue;
      last = event->value("number", std::int64_t{0});
      inbox.Push(EventCame{EventText(*event)});
    }
    inbox.Sleep(kWatchAgain);
  }
}

void FollowLog(const CtlOptions& options, const Channel& channel, const OpenLog& log,
               TopInbox& inbox) {
  const LogWatch lines{.lines = kTopLogLines, .follow = true, .ranks = {{log.rank, log.rank}}};
  const auto watch = RunWatch::Open(channel, log.run_id, {.output = true, .watch = lines});
  const TimePoint deadline = Clock::now() + options.timeout;
  LogsText text(true, kLogsHeldBytesMax, true);
  const auto push = [&](const std::string& more) {
    if (more.empty()) return;
    inbox.Push(TextCame{log.number, absl::StrSplit(absl::StripSuffix(more, "\n"), '\n')});
  };
  while (inbox.WantsText(log.number)) {
    const auto news = watch->Next(Clock::now() + kTurn);
    if (!news.ok()) return push(SentenceOf(news.status()));
    if (news->has_value()) {
      push(text.On(**news));
    } else if (text.waiting() && Clock::now() >= deadline) {
      push(text.StopWaiting());
    }
  }
}

void ReadStacks(const CtlOptions& options, const Channel& channel, const AskStacks& ask,
                TopInbox& inbox) {
  inbox.Push(TextCame{ask.number, {"they are being read ..."}});
  const auto stacks = StacksOf(options, channel, ask.run_id, ask.rank);
  std::vector<std::string> lines = {SentenceOf(stacks.status())};
  if (stacks.ok()) lines = StackLines(*stacks);
  inbox.Push(TextCame{ask.number, std::move(lines)});
}

void Drain(const CtlOptions& options, const Channel& channel, const AskDrain& drain,
           TopInbox& inbox) {
  const auto sentence =
      DrainNode(channel, drain.run_id, {.by = HostName(), .node = drain.node_id}, options.timeout);
  inbox.Push(AnswerCame{sentence.ok() ? *sentence : SentenceOf(sentence.status())});
}

}  // namespace

// The thread shares what it uses: it may wait for an answer when this object is gone.
template <typename Question>
std::optional<std::string> TopFeed::Ask(Question question) {
  if (!inbox_->BeginQuestion()) return "too many questions wait for an answer; ask again later";
  std::thread([options = options_, channel = channel_, inbox = inbox_, question] {
    question(options, channel, *inbox);
    inbox->EndQuestion();
  }).detach();
  return std::nullopt;
}

TopFeed::TopFeed(const CtlOptions& options, std::shared_ptr<ServiceChannel> channel)
    : options_(options), channel_(std::move(channel)), inbox_(std::make_shared<TopInbox>()) {
  Ask(PollStatus);
}

TopFeed::~TopFeed() { inbox_->End(); }

int TopFeed::fd() const { return inbox_->fd(); }

std::vector<TopNews> TopFeed::Take() { return inbox_->Take(); }

std::optional<std::string> TopFeed::Perform(const TopEffect& effect) {
  return std::visit(
      Overloaded{[this](const WatchEvents& watch) {
                   return Ask([watch, number = inbox_->BeginWatch()](
                                  const CtlOptions&, const Channel& channel, TopInbox& inbox) {
                     WatchRun(channel, watch.run_id, number, inbox);
                   });
                 },
                 [this](const AskStacks& ask) {
                   inbox_->SetText(ask.number);
                   return Ask([ask](const auto& options, const auto& channel, auto& inbox) {
                     ReadStacks(options, channel, ask, inbox);
                   });
                 },
                 [this](const OpenLog& log) {
                   inbox_->SetText(log.number);
                   return Ask([log](const auto& options, const auto& channel, auto& inbox) {
                     FollowLog(options, channel, log, inbox);
                   });
                 },
                 [this](const CloseText&) -> std::optional<std::string> {
                   inbox_->SetText(0);
                   return std::nullopt;
                 },
                 [this](const AskDrain& drain) {
                   return Ask([drain](const auto& options, const auto& channel, auto& inbox) {
                     Drain(options, channel, drain, inbox);
                   });
                 },
                 [](const EndTop&) -> std::optional<std::string> { return std::nullopt; }},
      effect);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_feed.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

bool Wants(const LogWatch& watch, int rank, bool is_stderr) {
  if (is_stderr ? watch.without_stderr : watch.without_stdout) return false;
  return watch.ranks.empty() ||
         std::any_of(watch.ranks.begin(), watch.ranks.end(), [&](const RankRange& range) {
           return range.first <= rank && rank <= range.last;
         });
}

std::size_t BytesOf(const LogLine& line) {
  return line.prefix.size() + line.text.size() + kLogLineOverhead;
}

}  // namespace

// ---- Lines of workers

void LogFeed::StartRound(std::uint64_t round, int workers) {
  round_ = round;
  tails_.resize(
      static_cast<std::size_t>(workers),
      Tail(Overflow::kDropOldest, {.size_max = limits_.tail_bytes, .items_kept = kLastLinesMax}));
  // The service has not renewed them.
  std::erase_if(watches_, [](const auto& entry) { return entry.second.paused; });
}

void LogFeed::Add(int worker, int rank, OutputStream stream, std::string_view prefix,
                  std::string_view line) {
  line_.rank = rank;
  line_.round = round_;
  line_.is_stderr = stream == OutputStream::kErr;
  line_.prefix = prefix;
  line_.text = line.substr(0, limits_.line_bytes);
  if (line.size() > limits_.line_bytes) {
    absl::StrAppend(&line_.text, "... (", line.size() - limits_.line_bytes,
                    " more bytes of this line are not shown)");
  }
  const std::size_t bytes = BytesOf(line_);
  for (auto& [id, watch] : watches_) {
    if (watch.wanted.follow && Wants(watch.wanted, rank, line_.is_stderr))
      watch.pending.Push(line_, bytes);
  }
  // Counts memory, not message bytes.
  tails_[static_cast<std::size_t>(worker)].Push({++lines_, line_}, bytes + sizeof(TailLine));
}

std::vector<std::string> LogFeed::LastLinesOf(int worker) const {
  const auto& lines = tails_[static_cast<std::size_t>(worker)].items();
  std::vector<std::string> last;
  for (auto it = lines.rbegin(); it != lines.rend() && last.size() < kLastLinesMax; ++it) {
    const LogLine& line = it->value.line;
    if (line.round != round_) break;
    last.push_back(Printable(absl::string_view(line.text).substr(0, kLastLineBytesMax)));
  }
  std::reverse(last.begin(), last.end());
  return last;
}

// ---- Subscriptions

void LogFeed::SetWatches(const std::vector<LogWatch>& wanted) {
  std::map<std::uint64_t, Watch> before = std::exchange(watches_, {});
  for (const LogWatch& one : wanted) {
    const auto it = before.find(one.id);
    if (it == before.end()) {
      watches_.emplace(one.id, Begin(one));
      continue;
    }
    Watch watch = std::move(it->second);
    if (watch.paused) Forget(watch, one.received);
    watch.paused = false;
    watches_.emplace(one.id, std::move(watch));
  }
}

LogFeed::Watch LogFeed::Begin(const LogWatch& wanted) const {
  Watch watch{.wanted = wanted,
              .number = wanted.received,
              .pending = {Overflow::kRefuse, {.size_max = limits_.pending_bytes}},
              .under_way = {Overflow::kRefuse, {.size_max = limits_.window_bytes}}};
  std::map<std::uint64_t, const LogLine*> lines;
  // A resumed subscriber has the tail already.
  for (auto tail = tails_.begin(); tail != tails_.end() && !wanted.resumed; ++tail) {
    int left = wanted.lines;
    for (auto it = tail->items().rbegin(); it != tail->items().rend() && left > 0; ++it) {
      const auto& [number, line] = it->value;
      if (!Wants(wanted, line.rank, line.is_stderr)) continue;
      lines.emplace(number, &line);
      --left;
    }
  }
  // The tails limit the first messages.
  for (const auto& [number, line] : lines) watch.pending.PushBeyondLimit(*line, BytesOf(*line));
  watch.pending.PushBeyondLimit(std::nullopt, 0);
  return watch;
}

void LogFeed::Taken(const LogsTaken& taken) {
  const auto it = watches_.find(taken.watch);
  if (it == watches_.end()) return;
  Forget(it->second, taken.number);
}

void LogFeed::Forget(Watch& watch, std::uint64_t number) {
  while (!watch.under_way.empty() && watch.under_way.items().front().value.number <= number) {
    watch.under_way.Pop();
    if (watch.again > 0) --watch.again;
  }
}

void LogFeed::Pause() {
  for (auto& entry : watches_) {
    entry.second.paused = true;
    entry.second.again = entry.second.under_way.items().size();
  }
}

// ---- Messages

std::vector<LogLines> LogFeed::Take(bool all) {
  std::vector<LogLines> messages;
  for (auto it = watches_.begin(); it != watches_.end();) {
    Watch& watch = it->second;
    const bool may_send = all || !watch.paused;
    const auto& under_way = watch.under_way.items();
    for (; may_send && watch.again > 0; --watch.again)
      messages.push_back(under_way[under_way.size() - watch.again].value);
    while (may_send && (!watch.pending.empty() || watch.pending.left_out() > 0) &&
           (all || !watch.under_way.is_full())) {
      messages.push_back(NextMessage(watch));
    }
    const bool done = watch.tail_sent && !watch.wanted.follow && watch.pending.empty();
    it = done ? watches_.erase(it) : std::next(it);
  }
  return messages;
}

LogLines LogFeed::NextMessage(Watch& watch) const {
  LogLines message;
  message.watch = watch.wanted.id;
  message.number = ++watch.number;
  std::size_t bytes = kLogLineOverhead;
  while (!watch.pending.empty() && bytes < limits_.batch_bytes && !message.tail_end) {
    // The number of dropped lines precedes the lines of a message.
    if (watch.pending.items().front().left_out > 0 && !message.lines.empty()) break;
    auto next = watch.pending.Pop();
    message.left_out += next.left_out;
    bytes += next.size;
    message.tail_end = !next.value.has_value();
    if (!message.tail_end) message.lines.push_back(*std::move(next.value));
  }
  watch.tail_sent = watch.tail_sent || message.tail_end;
  if (message.lines.empty() && !message.tail_end && watch.pending.empty())
    message.left_out += watch.pending.TakeLeftOut();
  watch.under_way.PushBeyondLimit(message, bytes);
  return message;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_feed.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Before the prefix and the text of each record of a tail.
struct Head {
  std::uint64_t number;
  std::uint64_t round;
  std::int32_t rank;
  std::uint32_t text_size;
  std::uint16_t prefix_size;
  bool is_stderr;
};

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

// ---- Tails

void LogFeed::Tail::Add(std::uint64_t number, const LogLine& line, std::size_t bytes_max) {
  const std::size_t size = sizeof(Head) + line.prefix.size() + line.text.size();
  if (newer_.size() + size > bytes_max / 2) {
    older_.swap(newer_);
    newer_.clear();
  }
  Head head{};
  head.number = number;
  head.round = line.round;
  head.rank = line.rank;
  head.text_size = static_cast<std::uint32_t>(line.text.size());
  head.prefix_size = static_cast<std::uint16_t>(line.prefix.size());
  head.is_stderr = line.is_stderr;
  newer_.append(reinterpret_cast<const char*>(&head), sizeof(head));
  newer_.append(line.prefix);
  newer_.append(line.text);
}

void LogFeed::Tail::Collect(const LogWatch& watch, std::map<std::uint64_t, LogLine>& into) const {
  std::deque<std::pair<std::uint64_t, LogLine>> found;
  for (const std::string* half : {&older_, &newer_}) {
    const char* at = half->data();
    const char* const end = at + half->size();
    while (at < end) {
      Head head;
      std::memcpy(&head, at, sizeof(head));
      at += sizeof(head);
      const char* const text = at + head.prefix_size;
      if (Wants(watch, head.rank, head.is_stderr)) {
        found.emplace_back(head.number, LogLine{head.rank, head.round, head.is_stderr,
                                                std::string(at, head.prefix_size),
                                                std::string(text, head.text_size)});
        if (found.size() > static_cast<std::size_t>(watch.lines)) found.pop_front();
      }
      at = text + head.text_size;
    }
  }
  for (auto& [number, line] : found) into.emplace(number, std::move(line));
}

// ---- What is said

void LogFeed::StartRound(std::uint64_t round, int workers) {
  round_ = round;
  tails_.resize(static_cast<std::size_t>(workers));
  // The service would have named them by now.
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
  tails_[static_cast<std::size_t>(worker)].Add(++lines_, line_, limits_.tail_bytes);
  for (auto& entry : watches_) {
    Watch& watch = entry.second;
    if (watch.wanted.follow && Wants(watch.wanted, rank, line_.is_stderr)) Append(watch, line_);
  }
}

void LogFeed::Append(Watch& watch, const LogLine& line) const {
  const std::size_t bytes = BytesOf(line);
  if (watch.pending_bytes + bytes > limits_.pending_bytes) {
    ++watch.left_out;
    return;
  }
  watch.pending_bytes += bytes;
  watch.pending.push_back({line, std::exchange(watch.left_out, 0), false, bytes});
}

// ---- Who wants it

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
  Watch watch;
  watch.wanted = wanted;
  watch.number = wanted.received;
  std::map<std::uint64_t, LogLine> lines;
  // One that has it already, and of which this node knows nothing more, goes on from here.
  if (!wanted.resumed) {
    for (const Tail& tail : tails_) tail.Collect(wanted, lines);
  }
  // All of it, whatever may wait: there is no more than the tails have.
  for (auto& [number, line] : lines) {
    const std::size_t bytes = BytesOf(line);
    watch.pending_bytes += bytes;
    watch.pending.push_back({std::move(line), 0, false, bytes});
  }
  watch.pending.push_back({{}, 0, true, 0});
  return watch;
}

void LogFeed::Taken(const LogsTaken& taken) {
  const auto it = watches_.find(taken.watch);
  if (it == watches_.end()) return;
  Forget(it->second, taken.number);
}

void LogFeed::Forget(Watch& watch, std::uint64_t number) {
  while (!watch.under_way.empty() && watch.under_way.front().message.number <= number) {
    watch.under_way_bytes -= watch.under_way.front().bytes;
    watch.under_way.pop_front();
    if (watch.again > 0) --watch.again;
  }
}

void LogFeed::Pause() {
  for (auto& entry : watches_) {
    entry.second.paused = true;
    entry.second.again = entry.second.under_way.size();
  }
}

// ---- Messages

std::vector<LogLines> LogFeed::Take(bool all) {
  std::vector<LogLines> messages;
  for (auto it = watches_.begin(); it != watches_.end();) {
    Watch& watch = it->second;
    const bool may_speak = all || !watch.paused;
    for (; may_speak && watch.again > 0; --watch.again) {
      messages.push_back(watch.under_way[watch.under_way.size() - watch.again].message);
    }
    while (may_speak && (!watch.pending.empty() || watch.left_out > 0) &&
           (all || watch.under_way_bytes < limits_.window_bytes)) {
      messages.push_back(NextMessage(watch));
    }
    const bool done = watch.tail_said && !watch.wanted.follow && watch.pending.empty();
    it = done ? watches_.erase(it) : std::next(it);
  }
  return messages;
}

LogLines LogFeed::NextMessage(Watch& watch) const {
  LogLines message;
  message.watch = watch.wanted.id;
  message.number = ++watch.number;
  std::size_t bytes = kLogLineOverhead;
  while (!watch.pending.empty() && bytes < limits_.batch_bytes) {
    Pending& next = watch.pending.front();
    if (next.left_out > 0) {
      if (!message.lines.empty()) break;  // what is left out stands before a message's lines
      message.left_out = next.left_out;
    }
    const bool tail_end = next.tail_end;
    if (!tail_end) {
      bytes += next.bytes;
      watch.pending_bytes -= next.bytes;
      message.lines.push_back(std::move(next.line));
    }
    watch.pending.pop_front();
    if (tail_end) {
      message.tail_end = watch.tail_said = true;
      break;
    }
  }
  if (message.lines.empty() && !message.tail_end && watch.pending.empty()) {
    message.left_out += std::exchange(watch.left_out, 0);
  }
  watch.under_way_bytes += bytes;
  watch.under_way.push_back({message, bytes});
  return message;
}

}  // namespace ddprun

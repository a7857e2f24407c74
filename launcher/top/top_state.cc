// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/top_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/status_text.h"
#include "rendezvous/base/overloaded.h"

namespace ddprun {
namespace {

using Kind = TopKey::Kind;

template <typename T>
void Keep(T value, std::size_t count_max, std::deque<T>& values) {
  values.push_back(std::move(value));
  if (values.size() > count_max) values.pop_front();
}

// Where a key that moves leads, of `count` places.
std::size_t Moved(TopKey key, std::size_t at, std::size_t page, std::size_t count) {
  const std::size_t last = count > 0 ? count - 1 : 0;
  const char c = key.kind == Kind::kCharacter ? key.character : '\0';
  std::size_t to = at;
  if (key.kind == Kind::kUp || c == 'k') to = at > 0 ? at - 1 : 0;
  if (key.kind == Kind::kDown || c == 'j') to = at + 1;
  if (key.kind == Kind::kPageUp) to = at > page ? at - page : 0;
  if (key.kind == Kind::kPageDown) to = at + page;
  if (key.kind == Kind::kFirst || c == 'g') to = 0;
  if (key.kind == Kind::kLast || c == 'G') to = last;
  return std::min(to, last);
}

void EraseCharacter(std::string& text) {
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.back());
    text.pop_back();
    if ((byte & 0xC0) != 0x80) return;
  }
}

}  // namespace

const char* NameOf(TopSort sort) {
  static constexpr const char* kNames[] = {"rank", "trouble", "step", "rate", "loss", "memory"};
  return kNames[static_cast<int>(sort)];
}

// ---- News

TopEffects Top::On(TopNews news) {
  return std::visit(
      Overloaded{[this](StatusCame& came) { return OnStatus(std::move(came.status)); },
                 [this](StatusFailed& failed) {
                   trouble_ = std::move(failed.sentence);
                   return TopEffects();
                 },
                 [this](EventCame& event) {
                   Keep(std::move(event.words), kTopEventsMax, events_);
                   return TopEffects();
                 },
                 [this](TextCame& came) {
                   Append(came);
                   return TopEffects();
                 },
                 [this](AnswerCame& answer) {
                   message_ = std::move(answer.sentence);
                   return TopEffects();
                 }},
      news);
}

TopEffects Top::OnStatus(ServiceStatus status) {
  trouble_.clear();
  const std::string shown = run() != nullptr ? run()->run_id : "";
  runs_ = std::move(status.runs);
  const auto same = std::find_if(runs_.begin(), runs_.end(),
                                 [&shown](const RunStatus& run) { return run.run_id == shown; });
  TopEffects effects;
  if (same == runs_.end()) {
    effects = ShowRun(0);
  } else {
    run_ = static_cast<std::size_t>(same - runs_.begin());
    FillStill();
    FillRows();
  }
  if (run() == nullptr) return effects;
  if (run()->progress) Keep(run()->progress->rate, kTopHistoryMax, rates_);
  if (run()->loss && std::isfinite(*run()->loss)) Keep(*run()->loss, kTopHistoryMax, losses_);
  return effects;
}

TopEffects Top::ShowRun(std::size_t index) {
  run_ = index;
  rates_.clear();
  losses_.clear();
  events_.clear();
  FillStill();
  FillRows();
  if (run() == nullptr) return {};
  return {WatchEvents{run()->run_id}};
}

void Top::FillStill() {
  still_.clear();
  if (run() == nullptr) return;
  for (const RanksInPlace& place : run()->still) {
    for (const RankRange& ranks : place.ranks)
      still_.push_back({ranks, place.place.waits.has_value()});
  }
  std::sort(still_.begin(), still_.end(),
            [](const StillRanks& a, const StillRanks& b) { return a.ranks.first < b.ranks.first; });
}

// ---- Rows

int Top::RankOf(TopRow row) const { return NodeOf(row).rank_first + std::max(0, row.local_rank); }

RankReport Top::ReportOf(TopRow row) const {
  const NodeStatus& node = NodeOf(row);
  const std::vector<RankReport>& ranks = node.rank_reports;
  if (row.local_rank >= 0) {
    const auto i = static_cast<std::size_t>(row.local_rank);
    return i < ranks.size() ? ranks[i] : RankReport();
  }
  RankReport all;
  if (node.progress) {
    all.step = node.progress->step;
    all.rate = node.progress->rate;
    all.section = node.progress->section;
  }
  double losses = 0;
  int with_loss = 0;
  for (const RankReport& rank : ranks) {
    all.memory += rank.memory;
    all.gpu_memory += rank.gpu_memory;
    all.slowness = std::max(all.slowness, rank.slowness);
    all.hung = all.hung || rank.hung;
    losses += rank.loss.value_or(0);
    with_loss += rank.loss ? 1 : 0;
  }
  if (with_loss > 0) all.loss = losses / with_loss;
  return all;
}

TopHealth Top::HealthOf(TopRow row) const {
  const NodeStatus& node = NodeOf(row);
  switch (node.state) {
    case NodeState::kAway:
      return TopHealth::kAway;
    case NodeState::kStopping:
    case NodeState::kStopped:
      return TopHealth::kStops;
    case NodeState::kSucceeded:
      return TopHealth::kEnded;
    case NodeState::kWaiting:
    case NodeState::kSpare:
      return TopHealth::kIdle;
    case NodeState::kRunning:
      break;
  }
  const RankReport report = ReportOf(row);
  if (report.hung) return TopHealth::kHung;
  if (report.ended) return TopHealth::kEnded;
  if (row.local_rank >= 0 && !still_.empty()) {
    const int rank = RankOf(row);
    auto after = std::upper_bound(
        still_.begin(), still_.end(), rank,
        [](int number, const StillRanks& still) { return number < still.ranks.first; });
    if (after != still_.begin() && rank <= (--after)->ranks.last)
      return after->waits ? TopHealth::kWaits : TopHealth::kLate;
  }
  return report.slowness > 0 ? TopHealth::kSlow : TopHealth::kRuns;
}

std::string StateText(const Top& top, TopRow row) {
  switch (top.HealthOf(row)) {
    case TopHealth::kHung:
      return "hung";
    case TopHealth::kWaits:
      return "waits";
    case TopHealth::kLate:
      return "late";
    case TopHealth::kSlow:
      return absl::StrFormat("slow %.1fx", top.ReportOf(row).slowness);
    case TopHealth::kEnded:
      return row.local_rank >= 0 ? "ended" : StateName(top.NodeOf(row).state);
    default:
      return StateName(top.NodeOf(row).state);
  }
}

bool Top::IsShown(TopRow row) const {
  if (filter_.empty()) return true;
  const NodeStatus& node = NodeOf(row);
  const std::string rank =
      row.local_rank >= 0 ? absl::StrCat("rank ", RankOf(row), " ") : std::string("node ");
  const std::string words = absl::StrCat(rank, node.host, " ", node.node_id.value, " ",
                                         StateText(*this, row), " ", ReportOf(row).section);
  return absl::StrContains(absl::AsciiStrToLower(words), absl::AsciiStrToLower(filter_));
}

// In the order of ranks a node is followed by its ranks; in another order the ranks are compared
// with each other, and nodes without one come last.
void Top::FillRows() {
  rows_.clear();
  const RunStatus* const run = this->run();
  for (std::size_t i = 0; run != nullptr && i < run->nodes.size(); ++i) {
    const int ranks = run->nodes[i].ranks;
    if (const TopRow row{i, -1}; (sort_ == TopSort::kRank || ranks == 0) && IsShown(row))
      rows_.push_back(row);
    for (int local = 0; local < ranks; ++local) {
      if (const TopRow row{i, local}; IsShown(row)) rows_.push_back(row);
    }
  }
  Sort();
  const auto found = std::find_if(rows_.begin(), rows_.end(), [this](TopRow row) {
    return row.local_rank == selected_local_rank_ && NodeOf(row).node_id.value == selected_node_;
  });
  Select(found != rows_.end() ? static_cast<std::size_t>(found - rows_.begin()) : selected_);
}

// The worst first: behind, slow, with a large loss or memory.
void Top::Sort() {
  if (sort_ == TopSort::kRank) return;
  constexpr double kLast = std::numeric_limits<double>::infinity();
  struct Keyed {
    bool is_node;
    double key;
    TopRow row;
  };
  std::vector<Keyed> keyed;
  keyed.reserve(rows_.size());
  for (const TopRow row : rows_) {
    const RankReport report = ReportOf(row);
    double key = 0;
    if (sort_ == TopSort::kTrouble) key = -static_cast<double>(HealthOf(row));
    if (sort_ == TopSort::kStep) key = report.step >= 0 ? static_cast<double>(report.step) : kLast;
    if (sort_ == TopSort::kRate) key = report.rate > 0 ? report.rate : kLast;
    if (sort_ == TopSort::kLoss) key = report.loss ? -*report.loss : kLast;
    if (sort_ == TopSort::kMemory) key = -static_cast<double>(report.memory);
    keyed.push_back({row.local_rank < 0, key, row});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) {
    return std::tuple(a.is_node, a.key) < std::tuple(b.is_node, b.key);
  });
  for (std::size_t i = 0; i < keyed.size(); ++i) rows_[i] = keyed[i].row;
}

void Top::Select(std::size_t row) {
  selected_ = std::min(row, rows_.empty() ? 0 : rows_.size() - 1);
  if (rows_.empty()) return;
  selected_node_ = NodeOf(rows_[selected_]).node_id.value;
  selected_local_rank_ = rows_[selected_].local_rank;
}

std::size_t Top::FirstRow(std::size_t page) const {
  return std::clamp(scroll_, selected_ + 1 - std::min(selected_ + 1, page), selected_);
}

// ---- Keys

TopEffects Top::OnKey(TopKey key, std::size_t page) {
  message_.clear();
  switch (mode_) {
    case TopMode::kTable:
      return OnTableKey(key, page);
    case TopMode::kText:
      return OnTextKey(key, page);
    case TopMode::kQuestion:
      return OnAnswer(key);
    case TopMode::kFilter:
      OnFilterKey(key);
  }
  return {};
}

TopEffects Top::OnTableKey(TopKey key, std::size_t page) {
  if (key.kind == Kind::kCharacter) {
    if (TopEffects effects = OnCommand(key.character); !effects.empty()) return effects;
    if (mode_ != TopMode::kTable) return {};
  }
  if (key.kind == Kind::kEscape && !filter_.empty()) {
    filter_.clear();
    FillRows();
  }
  Select(Moved(key, selected_, page, rows_.size()));
  scroll_ = FirstRow(page);
  return {};
}

TopEffects Top::OnCommand(char key) {
  switch (key) {
    case 'q':
    case 'Q':
      return {EndTop{}};
    case '/':
      mode_ = TopMode::kFilter;
      break;
    case 'o':
      sort_ = sort_ == TopSort::kMemory ? TopSort::kRank
                                        : static_cast<TopSort>(static_cast<int>(sort_) + 1);
      FillRows();
      break;
    case '\t':
      if (runs_.size() > 1) return ShowRun((run_ + 1) % runs_.size());
      break;
    case 's':
      return OpenText(false);
    case 'l':
      return OpenText(true);
    case 'd':
      AskWhetherToDrain();
      break;
    default:
      break;
  }
  return {};
}

void Top::OnFilterKey(TopKey key) {
  if (key.kind == Kind::kEscape) filter_.clear();
  if (key.kind == Kind::kEscape || key.kind == Kind::kEnter) mode_ = TopMode::kTable;
  if (key.kind == Kind::kErase) EraseCharacter(filter_);
  if (key.kind == Kind::kCharacter && filter_.size() < kTopFilterBytesMax &&
      static_cast<unsigned char>(key.character) >= ' ')
    filter_.push_back(key.character);
  FillRows();
}

// The answer is about this node, whichever row is selected by then.
void Top::AskWhetherToDrain() {
  if (rows_.empty()) return;
  const NodeStatus& node = NodeOf(rows_[selected_]);
  drain_ = {run()->run_id, node.node_id.value};
  const std::string rank = node.node_rank ? absl::StrCat(" (node rank ", *node.node_rank, ")") : "";
  question_ = absl::StrCat("drain node ", node.host, rank, " of run ", drain_.run_id, "? (y/n)");
  mode_ = TopMode::kQuestion;
}

// Anything but a yes is a no.
TopEffects Top::OnAnswer(TopKey key) {
  mode_ = TopMode::kTable;
  if (key.kind != Kind::kCharacter || key.character != 'y') return {};
  return {drain_};
}

TopEffects Top::OpenText(bool log) {
  if (rows_.empty()) return {};
  const TopRow row = rows_[selected_];
  if (NodeOf(row).ranks == 0) {
    message_ = "that node has no rank now";
    return {};
  }
  const int rank = RankOf(row);
  text_ = {.number = text_.number + 1,
           .title = absl::StrCat(log ? "log of rank " : "stacks of rank ", rank),
           .follows = log};
  mode_ = TopMode::kText;
  if (log) return {OpenLog{text_.number, run()->run_id, rank}};
  return {AskStacks{text_.number, run()->run_id, rank}};
}

void Top::Append(const TextCame& came) {
  if (mode_ != TopMode::kText || came.number != text_.number) return;
  for (const std::string& line : came.lines) {
    const bool full = text_.lines.size() >= kTopTextLinesMax;
    Keep(line, kTopTextLinesMax, text_.lines);
    if (full && text_.scroll > 0) --text_.scroll;
  }
}

TopEffects Top::OnTextKey(TopKey key, std::size_t page) {
  if (key.kind == Kind::kEscape || (key.kind == Kind::kCharacter && key.character == 'q')) {
    mode_ = TopMode::kTable;
    return {CloseText{text_.number}};
  }
  const std::size_t count = text_.lines.size();
  const std::size_t last = count > page ? count - page : 0;
  const std::size_t to = Moved(key, text_.follows ? last : text_.scroll, page, last + 1);
  text_.follows = to == last && (text_.follows || to != text_.scroll);
  text_.scroll = to;
  return {};
}

}  // namespace ddprun

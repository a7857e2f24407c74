// SPDX-License-Identifier: Apache-2.0
// `ddpctl top`: what a key, a status of the service and an event change on the screen, and what is
// to be done then. Pure: news and keys in, effects out. top_view draws it.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/client/control_client.h"

namespace ddprun {

struct TopKey {
  enum class Kind {
    kCharacter,
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kFirst,
    kLast,
    kEnter,
    kEscape,
    kErase
  };
  Kind kind = Kind::kCharacter;
  char character = 0;  // of kCharacter: a byte of UTF-8
};

// ---- News

struct StatusCame {
  ServiceStatus status;
};
// The service has not answered; what is shown stays.
struct StatusFailed {
  std::string sentence;
};
struct EventCame {
  std::string words;
};
// More of the text that AskStacks or OpenLog asked for.
struct TextCame {
  int number = 0;
  std::vector<std::string> lines;
};
// A sentence about what was done.
struct AnswerCame {
  std::string sentence;
};
using TopNews = std::variant<StatusCame, StatusFailed, EventCame, TextCame, AnswerCame>;

// ---- Effects

// The events of this run are shown from now on, and of no other.
struct WatchEvents {
  std::string run_id;
};
struct AskStacks {
  int number = 0;
  std::string run_id;
  int rank = 0;
};
struct OpenLog {
  int number = 0;
  std::string run_id;
  int rank = 0;
};
// The text of that number is no longer shown.
struct CloseText {
  int number = 0;
};
struct AskDrain {
  std::string run_id;
  std::string node_id;
};
struct EndTop {};
using TopEffect = std::variant<WatchEvents, AskStacks, OpenLog, CloseText, AskDrain, EndTop>;
using TopEffects = std::vector<TopEffect>;

// ---- State

// A row of the table: a node (local_rank -1), or one of its ranks.
struct TopRow {
  std::size_t node = 0;  // of RunStatus::nodes
  int local_rank = -1;
};

// Worst last. kWaits: in a collective, for 10 s, for a rank that is kLate.
enum class TopHealth { kEnded, kIdle, kRuns, kSlow, kWaits, kLate, kStops, kAway, kHung };

enum class TopSort { kRank, kTrouble, kStep, kRate, kLoss, kMemory };
const char* NameOf(TopSort sort);

enum class TopMode { kTable, kFilter, kQuestion, kText };

class Top {
 public:
  // For TopMode::kText; the last lines if `follows`, else `scroll` lines are above the screen.
  struct Text {
    int number = 0;
    std::string title;
    std::deque<std::string> lines;
    std::size_t scroll = 0;
    bool follows = false;
  };

  TopEffects On(TopNews news);
  // `page`: the rows that the table or text has on the screen.
  TopEffects OnKey(TopKey key, std::size_t page);

  // Null: the service has no run, or has not answered yet.
  const RunStatus* run() const { return runs_.empty() ? nullptr : &runs_[run_]; }
  std::size_t run_count() const { return runs_.size(); }
  const std::vector<TopRow>& rows() const { return rows_; }
  std::size_t selected() const { return selected_; }  // of rows()
  // The first one on a screen of `page` rows: the selected one is on it.
  std::size_t FirstRow(std::size_t page) const;
  TopMode mode() const { return mode_; }
  TopSort sort() const { return sort_; }
  const std::string& filter() const { return filter_; }
  const std::string& trouble() const { return trouble_; }
  const std::string& message() const { return message_; }
  const std::deque<std::string>& events() const { return events_; }
  const std::deque<double>& losses() const { return losses_; }
  const std::deque<double>& rates() const { return rates_; }
  const Text& text() const { return text_; }
  const std::string& question() const { return question_; }  // of TopMode::kQuestion

  // Of a row of rows().
  const NodeStatus& NodeOf(TopRow row) const { return runs_[run_].nodes[row.node]; }
  // Of a node: its ranks together.
  RankReport ReportOf(TopRow row) const;
  TopHealth HealthOf(TopRow row) const;

 private:
  struct StillRanks {
    RankRange ranks;
    bool waits = false;
  };

  TopEffects OnStatus(ServiceStatus status);
  TopEffects ShowRun(std::size_t index);
  TopEffects OnTableKey(TopKey key, std::size_t page);
  TopEffects OnCommand(char key);
  void OnFilterKey(TopKey key);
  TopEffects OnTextKey(TopKey key, std::size_t page);
  TopEffects OnAnswer(TopKey key);
  void AskWhetherToDrain();
  TopEffects OpenText(bool log);
  void Append(const TextCame& came);
  void FillStill();
  void FillRows();
  void Sort();
  void Select(std::size_t row);
  bool IsShown(TopRow row) const;
  int RankOf(TopRow row) const;

  std::vector<RunStatus> runs_;
  std::size_t run_ = 0;
  std::string trouble_;
  std::string message_;
  std::deque<std::string> events_;
  std::deque<double> losses_;
  std::deque<double> rates_;
  std::vector<StillRanks> still_;  // by rank
  std::vector<TopRow> rows_;
  std::size_t selected_ = 0;
  std::size_t scroll_ = 0;  // rows above the screen
  // What `selected_` is, wherever it comes to be.
  std::string selected_node_;
  int selected_local_rank_ = -1;
  TopMode mode_ = TopMode::kTable;
  TopSort sort_ = TopSort::kRank;
  std::string filter_;
  Text text_;
  std::string question_;
  AskDrain drain_;  // what a yes to `question_` does
};

// "running", "slow 2.1x": with what the node's state and the rank's report say.
std::string StateText(const Top& top, TopRow row);

}  // namespace ddprun

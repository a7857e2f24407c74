// SPDX-License-Identifier: Apache-2.0
// Decides when the end of a worker is reported, and with which evidence: its failure record and
// core file, and where the ranks wait among their collectives. A disk may delay the first; a rank
// that fails in a collective takes its peers with it, one after the other, and what they say
// meanwhile tells which of them is the odd one out. Reports keep the order of the ends. Pure: no
// process, no clock, no I/O.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/collectives/flight_recorder.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/supervisor/supervisor.h"
#include "proto/failure_record.h"
#include "proto/progress_message.h"

namespace ddprun {

// ---- Effects

// Ask each running worker where it is.
struct AskPlaces {};
// Ask the flight recorders of these workers; see flight_recorder.h. DumpsRead answers.
struct ReadFlightDumps {
  std::vector<int> local_ranks;
  int ended = -1;
};
// EvidenceRead answers.
struct ReadEvidence {
  int end = 0;
  std::string record_file;  // of its failure record
  std::int64_t pid = 0;
  // The start of a worker that dumped core: older files are not its core. Absent: none is looked
  // for.
  std::optional<std::chrono::system_clock::time_point> core_of_start;
  int signal = 0;  // that ended it then
  std::optional<double> cpu_seconds;
  bool is_python = false;
};
// Write the bytes of a failure record beside the worker's log files.
struct KeepRecord {
  int local_rank = 0;
  std::string bytes;
};
struct ReportEvent {
  Event event;
};
using AutopsyEffect =
    std::variant<AskPlaces, ReadFlightDumps, ReadEvidence, KeepRecord, ReportEvent>;

// ---- Events

// A worker has ended.
struct EndSeen {
  WorkerEnded ended;
  std::optional<ProgressMessage> message;  // that it had sent before and was not read yet
  bool was_failing = false;                // when this agent asked it to end
  bool watches_collectives = false;        // it says where it is among them
  ReadEvidence question;                   // with its start, whether it dumped core or not
};
// It has left the round by itself, and lives on.
struct LeaveSeen {
  WorkerLeft left;
  std::optional<ProgressMessage> message;
};
// What an ended worker has left on disks, and its machine's state.
struct Evidence {
  FailureRecord record;
  std::string record_bytes;
  std::string core_file;
  EndEvidence machine;
};
struct EvidenceRead {
  int end = 0;  // of ReadEvidence
  Evidence evidence;
};
struct DumpsRead {
  DumpedPlaces places;
};
struct TimePassed {};
using AutopsyEvent = std::variant<EndSeen, LeaveSeen, EvidenceRead, DumpsRead, TimePassed>;

// ---- The decisions

class Autopsy {
 public:
  // What the workers of the round do now.
  struct Peers {
    bool any_runs = false;
    bool any_can_be_kept = false;  // and runs
    bool stopping = false;         // this agent stops the round
  };

  // `places`: where the workers are, by what they have reported. It must outlive this object.
  explicit Autopsy(HangWatch& places) : places_(places) {}

  void BeginRound(int rank_first);
  std::vector<AutopsyEffect> Step(AutopsyEvent event, const Peers& peers, TimePoint now);
  // When TimePassed is due. Absent: nothing waits.
  std::optional<TimePoint> NextDeadline() const;
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    int end = 0;
    Event event;
    std::optional<TimePoint> deadline;  // of the evidence; absent: none is needed
    std::optional<Evidence> evidence;
  };
  using Effects = std::vector<AutopsyEffect>;

  void OnEnd(EndSeen seen, const Peers& peers, TimePoint now, Effects& effects);
  void OnLeave(LeaveSeen seen, TimePoint now);
  void OnEvidence(EvidenceRead read);
  void OnDumps(const DumpedPlaces& places);
  void LetPeersSpeak(const Peers& peers, TimePoint now, Effects& effects);
  void ReadDumps(int local_rank, TimePoint now, Effects& effects);
  void NoteGone(int local_rank, const std::optional<ProgressMessage>& message, TimePoint now);
  void UpdatePlaces();
  void Release(const Peers& peers, TimePoint now, Effects& effects);
  void ReleaseFront(Effects& effects);

  HangWatch& places_;
  int rank_first_ = 0;
  std::deque<Waiting> waiting_;
  int last_end_ = 0;
  // Reports are held so long, so that peers can say where they fail,
  std::optional<TimePoint> peers_until_;
  TimePoint peers_limit_{};
  // and so long for the dumps of one that could not say where it was, and of its peers.
  std::optional<TimePoint> dumps_until_;
  bool core_folder_hangs_ = false;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/worker_evidence.h"

#include <utility>

#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/processes/core_file.h"

namespace ddprun {

void WorkerEvidence::Add(Event event) {
  waiting_.push_back({.event = std::move(event), .call = {}, .deadline = {}});
}

void WorkerEvidence::Add(WorkerEnded ended, Question question, TimePoint now) {
  if (core_folder_hangs_) question.core_of_start.reset();
  Waiting& waiting = waiting_.emplace_back();
  waiting.call = background_.Start<Found>(
      [question = std::move(question), pid = static_cast<pid_t>(ended.pid)] {
        return Read(question, pid);
      });
  waiting.deadline = now + kDiskAnswerTimeout;
  waiting.event = std::move(ended);
}

WorkerEvidence::Found WorkerEvidence::Read(const Question& question, pid_t pid) {
  Found found;
  // A worker without a record, or with one that cannot be read, has left no message.
  found.record = ReadFailureRecord(question.record_file).value_or(FailureRecord{});
  found.record_bytes = ReadSmallFile(question.record_file, kRecordBytesMax);
  if (question.core_of_start.has_value())
    found.core_file = FindCoreOf(pid, question.signal, *question.core_of_start);
  return found;
}

void WorkerEvidence::Release(TimePoint now, std::vector<Event>& events) {
  while (!waiting_.empty()) {
    Waiting& front = waiting_.front();
    if (front.call.pending()) {
      std::optional<Found> found = front.call.Take();
      if (!found.has_value() && now < front.deadline) return;
      auto& ended = std::get<WorkerEnded>(front.event);
      if (found.has_value()) {
        ended.message = std::move(found->record.message);
        ended.traceback = std::move(found->record.traceback);
        ended.core_file = std::move(found->core_file);
        keep_record_(ended.local_rank, found->record_bytes);
      } else {
        core_folder_hangs_ = true;
      }
    }
    events.push_back(std::move(front.event));
    waiting_.pop_front();
  }
}

std::optional<TimePoint> WorkerEvidence::NextDeadline() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.front().deadline;
}

}  // namespace ddprun

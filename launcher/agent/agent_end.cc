// SPDX-License-Identifier: Apache-2.0
// What an agent prints and writes when its part of the run is over.
#include <fcntl.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/agent/agent.h"
#include "launcher/base/flag_names.h"
#include "launcher/base/limits.h"
#include "launcher/base/signals.h"
#include "launcher/base/temp_dir.h"
#include "launcher/supervisor/verdict.h"
#include "proto/failure_record.h"
#include "proto/output_file.h"
#include "proto/text.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

void Agent::Print(const std::string& sentence) {
  console_.WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", ForUsers(sentence)));
}

void Agent::ShowEnd(const End& end) {
  const VerdictOptions& options = config_.options.verdict;
  std::string text = end.text;
  if (end.verdict.has_value() && end.verdict->cause.has_value() &&
      console_.EndsWith(end.verdict->cause->message) && text == VerdictText(*end.verdict)) {
    text = VerdictText(*end.verdict, FailureMessage::kOmit);
  }
  std::string json;
  if (options.form == VerdictForm::kJson || !options.file.empty() || config_.report.detached()) {
    const RunEnd whole{
        .run_id = state_.round.has_value() ? state_.round->run_id : config_.options.run_id,
        .host = config_.host,
        .exit_code = end.exit_code,
        .text = end.text,
        .verdict = end.verdict};
    json = VerdictJson(whole);
    if (options.form == VerdictForm::kJson && !text.empty()) text = json;
    if (!options.file.empty()) {
      ReportIfNotWritten(options.file,
                         [file = options.file, json] { return WriteWholeFile(file, json + "\n"); });
    }
  }
  config_.report.Verdict(text, json);
  if (config_.control_pipe.has_value()) {
    // All nodes have the same verdict; the head prints it once.
    if (!text.empty()) SendToHead(NodeVerdict{text.substr(0, kVerdictBytesMax)});
    if (end.exit_code == 0 && end.verdict.has_value() && end.verdict->success) {
      SendToHead(Finished{.run_id = config_.options.run_id,
                          .round = static_cast<long long>(ToNumber(end.verdict->round)),
                          .nodes = end.verdict->node_count,
                          .world_size = end.verdict->world_size});
    }
    return;
  }
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (!text.empty()) console_.WriteLine(OutputStream::kErr, ForUsers(line));
  }
  LeaveRecord(end);
  LeaveTerminationMessage(end);
}

// As torchrun does for its parent launcher: the first cause is reported as this process's failure.
void Agent::LeaveRecord(const End& end) {
  const std::string& file = config_.options.verdict.record_file;
  if (file.empty() || !end.verdict.has_value() || !end.verdict->cause.has_value()) return;
  ReportIfNotWritten(file, [file, record = RecordOf(*end.verdict->cause)] {
    return WriteFailureRecord(file, record, static_cast<long long>(std::time(nullptr)));
  });
}

// The kubelet made the file, and reads it when the container has ended: it is written as it is.
void Agent::LeaveTerminationMessage(const End& end) {
  const VerdictOptions& options = config_.options.verdict;
  if (options.termination_log.empty() || end.text.empty()) return;
  ReportIfNotWritten(
      options.termination_log,
      [file = options.termination_log, may_be_missing = options.in_pod,
       text = CutText(ForUsers(end.text), kTerminationMessageBytesMax)]() -> absl::Status {
        const OwnedFd fd(open(file.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK | O_CLOEXEC));
        if (fd.get() < 0 && may_be_missing) return absl::OkStatus();
        const int error = fd.get() < 0 ? errno : WriteAll(fd.get(), text.data(), text.size());
        if (error == 0) return absl::OkStatus();
        return absl::UnavailableError(absl::StrCat("cannot write --termination-log ", file, ": ",
                                                   ErrnoText(error), "; it must exist already"));
      });
}

// The run is over, and a disk that hangs must not keep the node from ending.
void Agent::ReportIfNotWritten(const std::string& path, std::function<absl::Status()> write) {
  const auto status = CallWithDeadline<absl::Status>(kVerdictFileTimeout, std::move(write));
  if (!status.has_value()) {
    Print(absl::StrCat("cannot write ", path, ": its disk has not answered for ",
                       kVerdictFileTimeout.count(), " s; check that disk"));
  } else if (!status->ok()) {
    Print(std::string(status->message()));
  }
}

void Agent::Close() {
  workers_.EndForkServer();  // before its folder is removed
  console_.Pump();
  session_.End();
  stores_.Close();
  observer_.ClosePage();
  session_.CloseService();
  for (const std::string& problem : observer_.FinishMessages(config_.worker_signal_mask, poller_))
    Print(problem);
  observer_.Close();
  // Last, so that a slow reader or disk does not delay other nodes. A signal ends the wait.
  const OwnedFd impatience =
      OwnedFd(signalfd(-1, &config_.end_signals, SFD_NONBLOCK | SFD_CLOEXEC));
  workers_.logs().FinishFiles(impatience.get());
  console_.Flush(kConsoleStallTimeout, kConsoleFlushTimeout, impatience.get());
  RemoveTempDir(config_.temp_dir);
  RemoveTempDir(config_.shared_dir);
}

}  // namespace ddprun

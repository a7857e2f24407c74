// SPDX-License-Identifier: Apache-2.0
// ddpctl web: a run as a page, live at an address of this machine, or as a file that needs no
// network.
#include "launcher/web/web_command.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/events_text.h"
#include "launcher/runs/event_record.h"
#include "launcher/runs/output_record.h"
#include "launcher/runs/run_folder.h"
#include "launcher/runs/run_sample.h"
#include "launcher/web/web_pages.h"
#include "launcher/web/web_state.h"
#include "proto/json_text.h"
#include "proto/output_file.h"

namespace ddprun {
namespace {

// The last lines of a past run, of both streams in their order.
void AddOutput(const std::string& folder, WebState& state) {
  std::deque<std::string> lines;
  ReadLines(folder, [&](OutputStream, std::string line) {
    lines.push_back(std::move(line));
    if (lines.size() > kWebLinesMax) lines.pop_front();
  });
  for (const std::string& line : lines) state.OnLine(line);
}

int Save(const CtlOptions& options, const WebState& state) {
  const absl::StatusOr<std::string> nonce = RandomDigits();
  if (!nonce.ok()) return CtlFailed(nonce.status());
  const std::string page = WebPage(state.Snapshot(/*control=*/false), *nonce);
  if (absl::Status status = WriteWholeFile(options.save, page); !status.ok())
    return CtlFailed(status);
  return Show(absl::StrCat("saved ", options.save, ", ", (page.size() + 1023) / 1024, " KB\n"));
}

}  // namespace

std::int64_t UnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

void AddFacts(const RunFacts& facts, WebState& state) {
  const WebState::Json why = Explain(facts);
  state.OnRun({{"state", why["state"]}, {"why", why["text"]}});
  for (const WebState::Json& event : facts.events)
    state.OnEvent(JsonText(event), event, EventWords(event));
}

void AddSamples(const std::string& folder, WebState& state) {
  for (const std::string& line : ReadSamples(folder)) {
    if (const auto sample = ParseSample(line)) state.OnSample(*sample);
  }
}

absl::Status AddOthers(const CtlOptions& options, WebState& state) {
  if (options.compare.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> folder = RunsFolder(ReadVariable);
  if (!folder.ok()) return folder.status();
  for (const std::string& name : options.compare) {
    const auto run = FindRun(*folder, name, RunChoice::kAny);
    if (!run.ok()) return run.status();
    const std::string own = FolderOf(*folder, run->record.name);
    WebState other(name);
    AddSamples(own, other);
    if (other.samples().empty()) {
      return absl::NotFoundError(absl::StrCat(
          "run ", name, " has no curves in ", own,
          ": they are recorded of a detached run whose service is in its own process"));
    }
    state.Compare(other);
  }
  return absl::OkStatus();
}

int ShowPage(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel,
             const std::string& folder, WatchSignals& signals) {
  const absl::StatusOr<RunStatus> run = TheRun(options, channel);
  if (!run.ok()) return CtlFailed(run.status());
  if (options.save.empty()) return ServePage(options, channel, run->run_id, folder, signals);
  const absl::StatusOr<RunFacts> facts = FactsOf(options, channel);
  if (!facts.ok()) return CtlFailed(facts.status());
  WebState state(facts->name);
  if (absl::Status added = AddOthers(options, state); !added.ok()) return CtlFailed(added);
  AddFacts(*facts, state);
  if (!folder.empty()) {
    AddSamples(folder, state);
    AddOutput(folder, state);
  }
  state.OnSample(SampleOf(*run, UnixMs()));
  return Save(options, state);
}

int SavePastPage(const CtlOptions& options, const KnownRun& run, const std::string& folder) {
  if (options.save.empty()) {
    return CtlFailed(absl::FailedPreconditionError(absl::StrCat(
        "run ", run.record.name, " has ended: ddpctl web --save FILE.html writes its page")));
  }
  WebState state(run.record.name);
  if (absl::Status added = AddOthers(options, state); !added.ok()) return CtlFailed(added);
  AddFacts(PastFacts(run, folder), state);
  AddSamples(folder, state);
  AddOutput(folder, state);
  return Save(options, state);
}

}  // namespace ddprun

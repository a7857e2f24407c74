// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <variant>

#include "launcher/runs/run_sample.h"
#include "proto/output_file.h"
#include "proto/text.h"

namespace ddprun {
namespace {

constexpr std::size_t kTextBytesMax = PIPE_BUF - kFrameHeaderBytes;
constexpr int kReportPipeBytes = 1 << 20;  // as much as any user may have
constexpr std::size_t kEventTextBytesMax =
    1000;  // of one of its texts, of which it has up to three

}  // namespace

RunReport::RunReport(OwnedFd pipe) : pipe_(std::move(pipe)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  // A snapshot of a run of many nodes comes at once (step_lines.h).
  fcntl(pipe_.get(), F_SETPIPE_SZ, kReportPipeBytes);
}

void RunReport::Begun() {
  if (!std::exchange(begun_, true)) Send(FrameKind::kBegun, "");
}

void RunReport::Event(const RunEvent& event) const {
  if (!detached()) return;
  RunEvent cut = event;
  cut.text = CutText(cut.text, kEventTextBytesMax);
  for (auto& [name, value] : cut.fields) {
    if (auto* text = std::get_if<std::string>(&value)) *text = CutText(*text, kEventTextBytesMax);
  }
  const std::string line =
      ToJsonLine(cut, std::chrono::system_clock::now(), std::chrono::steady_clock::now());
  if (line.size() <= kTextBytesMax) Send(FrameKind::kEvent, line);
}

void RunReport::Sample(const RunStatus& run, bool nodes) const {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  RunSample sample = SampleOf(run, duration_cast<milliseconds>(now).count());
  if (!nodes) sample.nodes.reset();
  const std::string line = SampleLine(sample, kTextBytesMax - 1) + "\n";
  if (line.size() <= kTextBytesMax) Send(FrameKind::kSample, line);
}

bool RunReport::Steps(absl::string_view lines) const {
  for (; !lines.empty(); lines.remove_prefix(std::min(lines.size(), kTextBytesMax))) {
    if (!Send(FrameKind::kStep, lines.substr(0, kTextBytesMax))) return false;
  }
  return true;
}

void RunReport::Verdict(const std::string& text, const std::string& json) const {
  absl::string_view rest = json;
  for (; !rest.empty(); rest.remove_prefix(std::min(rest.size(), kTextBytesMax)))
    Send(FrameKind::kVerdictJson, rest.substr(0, kTextBytesMax));
  Send(FrameKind::kVerdict, text);
}

// A frame of PIPE_BUF bytes is written whole or not at all.
bool RunReport::Send(FrameKind kind, absl::string_view text) const {
  if (!pipe_.valid()) return false;
  const std::string frame = EncodeFrame(kind, CutText(std::string(text), kTextBytesMax));
  const HeldBackSignal no_reader(SIGPIPE);
  return write(pipe_.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size());
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_mux.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "launcher/base/int_ranges.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Rank of a parked worker.
constexpr int kNoRank = -1;

}  // namespace

// ---- The round

LogMux::LogMux(Console& console, LogFold fold, LogTime time)
    : console_(console),
      fold_(fold),
      stamp_(time, std::chrono::steady_clock::now()),
      writer_(LogWriter::Make(
          {.queue_bytes_max = kLogQueueBytesMax, .retry_interval = kLogRetryInterval})),
      folder_({.window = kFoldWindow, .bytes_max = kFoldBytesMax, .lines_max = kFoldLinesMax}),
      feed_({.tail_bytes = kLogTailBytesMax,
             .line_bytes = kLogLineBytesMax,
             .pending_bytes = kLogPendingBytesMax,
             .window_bytes = kLogWindowBytes,
             .batch_bytes = kLogBatchBytes}) {}

absl::Status LogMux::StartRound(const LogPlan& plan, const std::vector<bool>& kept,
                                std::vector<WriteEnds>& write_ends) {
  const std::size_t count = plan.workers.size();
  if (sources_.size() < count) sources_.resize(count);
  write_ends.clear();
  write_ends.resize(count);
  status_rank_ = -1;
  read_buffer_.resize(kPipeReadBytes);
  feed_.StartRound(plan.round, static_cast<int>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const bool stays = i < kept.size() && kept[i];
    if (!stays) sources_[i] = std::make_unique<Source>();
    Source& source = *sources_[i];
    source.index = static_cast<int>(i);
    source.plan = plan.workers[i];
    for (Channel* channel : {&source.out, &source.err}) {
      const StreamPlan& stream = channel == &source.out ? source.plan.out : source.plan.err;
      if (channel->file < 0) channel->file = AddFile(stream.file, plan.rotation);
    }
    if (!source.plan.record_file.empty() && source.record < 0) {
      source.record =
          writer_->Add(std::make_unique<LogFile>(source.plan.record_file, LogFile::Replaced{}));
    }
    if (stays) continue;
    if (absl::Status status = OpenChannels(source, write_ends[i]); !status.ok()) {
      // The round has none of them; the others go on as they were.
      for (std::size_t j = 0; j <= i; ++j) {
        if (j < kept.size() && kept[j]) continue;
        CloseFiles(*sources_[j]);
        sources_[j].reset();
      }
      return status;
    }
  }
  out_filter_ = {plan.out_filter.texts, AddFile(plan.out_filter.file, plan.rotation)};
  err_filter_ = {plan.err_filter.texts, AddFile(plan.err_filter.file, plan.rotation)};
  StartFolding(plan);
  return absl::OkStatus();
}

absl::Status LogMux::StartParked(int worker, const std::string& prefix, WriteEnds& ends) {
  const auto index = static_cast<std::size_t>(worker);
  if (sources_.size() <= index) sources_.resize(index + 1);
  sources_[index] = std::make_unique<Source>();
  sources_[index]->index = worker;
  sources_[index]->plan = {.rank = kNoRank, .prefix = prefix};
  return OpenChannels(*sources_[index], ends);
}

void LogMux::Swap(int a, int b) {
  std::swap(sources_[static_cast<std::size_t>(a)], sources_[static_cast<std::size_t>(b)]);
  for (const int i : {a, b}) {
    if (sources_[static_cast<std::size_t>(i)]) sources_[static_cast<std::size_t>(i)]->index = i;
  }
}

std::optional<absl::Status> LogMux::Opened() {
  const std::optional<absl::Status> opened = writer_->Opened();
  if (!opened.has_value() || opened->ok()) return opened;
  CloseFiles();
  return absl::UnavailableError(
      absl::StrCat(opened->message(), "; name another folder with --log-dir"));
}

absl::Status LogMux::GoOnUnopened() {
  writer_->GoOnUnopened(kLogOpenTimeout);
  return absl::OkStatus();
}

int LogMux::AddFile(const std::string& path, const LogRotation& rotation) {
  return path.empty() ? -1 : writer_->Add(std::make_unique<LogFile>(path, rotation));
}

void LogMux::CloseFiles(Source& source) {
  for (Channel* channel : {&source.out, &source.err})
    writer_->Close(std::exchange(channel->file, -1));
  writer_->Close(std::exchange(source.record, -1));
}

void LogMux::CloseFiles() {
  for (const std::unique_ptr<Source>& source : sources_) {
    if (source) CloseFiles(*source);
  }
  for (Filter* filter : {&out_filter_, &err_filter_})
    writer_->Close(std::exchange(filter->file, -1));
}

absl::Status LogMux::OpenChannels(Source& source, WriteEnds& ends) {
  absl::Status status = OpenChannel(source, OutputStream::kOut, ends.out);
  if (status.ok()) status = OpenChannel(source, OutputStream::kErr, ends.err);
  return status;
}

absl::Status LogMux::OpenChannel(Source& source, OutputStream stream, OwnedFd& write_end) {
  Channel& channel = source.Of(stream);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot make a pipe for the output of rank ",
                                               source.plan.rank, ": ", ErrnoText(errno)));
  }
  channel.pipe = OwnedFd(fds[0]);
  write_end = OwnedFd(fds[1]);
  // Only the reading end: the worker's end stays blocking.
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  fcntl(fds[0], F_SETPIPE_SZ,
        static_cast<int>(kPipeBytes));  // on failure it keeps the default size
  LineSplitter::Sink sink;
  sink.line = [this, &source, stream](std::string_view line) { OnLine(source, stream, line); };
  sink.progress = [this, &source, stream](std::string_view segment) {
    OnProgress(source, stream, segment);
  };
  channel.splitter = std::make_unique<LineSplitter>(std::move(sink), kLineBytesMax);
  return absl::OkStatus();
}

std::vector<LogMux::Pipe> LogMux::OpenPipes(int worker) const {
  const Source& source = *sources_[static_cast<std::size_t>(worker)];
  std::vector<Pipe> pipes;
  for (OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
    const Channel& channel = source.Of(stream);
    if (channel.pipe.valid()) pipes.push_back({channel.pipe.get(), worker, stream});
  }
  return pipes;
}

// ---- Reading

bool LogMux::Read(int worker, OutputStream stream, TimePoint now) {
  Source& source = *sources_[static_cast<std::size_t>(worker)];
  if (ReadInto(source, stream, kPipeReadBytes, now)) {
    AwaitEnd(source, stream, now);
    return true;
  }
  if (!source.out.pipe.valid() && !source.err.pipe.valid()) EndWorker(source, now);
  return false;
}

void LogMux::Drain(int worker, TimePoint now) {
  Source& source = *sources_[static_cast<std::size_t>(worker)];
  for (OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
    ReadInto(source, stream, kPipeDrainBytesMax, now);
    Channel& channel = source.Of(stream);
    if (channel.pipe.valid()) channel.splitter->Flush();  // the last line may lack a line end
  }
  EndWorker(source, now);
}

bool LogMux::ReadInto(Source& source, OutputStream stream, std::size_t bytes_max, TimePoint now) {
  Channel& channel = source.Of(stream);
  now_ = now;
  while (channel.pipe.valid() && bytes_max > 0) {
    const ssize_t count =
        read(channel.pipe.get(), read_buffer_.data(), std::min(bytes_max, read_buffer_.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) {
      channel.pipe.Reset();
      channel.splitter->Flush();
      return false;
    }
    const std::string_view bytes(read_buffer_.data(), static_cast<std::size_t>(count));
    if (channel.file >= 0) writer_->Append(channel.file, bytes);
    if (channel.splitter->unfinished().empty()) channel.line_begun = now;
    channel.splitter->Append(bytes);
    bytes_max -= bytes.size();
  }
  return channel.pipe.valid();
}

void LogMux::EndRound(const std::vector<bool>& kept, TimePoint now) {
  now_ = now;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (!sources_[i] || (i < kept.size() && kept[i])) continue;
    Drain(static_cast<int>(i), now);
    sources_[i]->out.pipe.Reset();
    sources_[i]->err.pipe.Reset();
    CloseFiles(*sources_[i]);
  }
  ShowAll();
  for (Filter* filter : {&out_filter_, &err_filter_})
    writer_->Close(std::exchange(filter->file, -1));
  console_.ClearStatus();
  status_rank_ = -1;
}

void LogMux::OnLine(Source& source, OutputStream stream, std::string_view line) {
  source.Of(stream).line_begun = now_;  // the next one
  if (source.plan.rank == kNoRank) return ShowLine(stream, source.plan.prefix, line, now_);
  feed_.Add(source.index, source.plan.rank, stream, source.plan.prefix, line);
  const StreamPlan& plan = source.plan.Of(stream);
  const Filter& filter = stream == OutputStream::kOut ? out_filter_ : err_filter_;
  if (plan.filtered && std::any_of(filter.texts.begin(), filter.texts.end(), [&](const auto& text) {
        return line.find(text) != std::string_view::npos;
      })) {
    writer_->Append(filter.file, source.plan.prefix + std::string(line) + "\n");
  }
  if (!plan.on_console) return;
  if (source.plan.rank == status_rank_) {
    // It comes back if the line was of the other stream.
    source.out.changed = source.err.changed = true;
    EraseStatus(now_);
  }
  Pass(source, stream, line);
}

// To the console.
void LogMux::Pass(const Source& source, OutputStream stream, std::string_view line) {
  if (folding_ && Folds(stream)) {
    Show(folder_.Add(source.index, stream, line, now_));
  } else {
    ShowLine(stream, source.plan.prefix, line, now_);
  }
}

// ---- Unfinished lines

void LogMux::OnProgress(Source& source, OutputStream stream, std::string_view segment) {
  if (!source.plan.Of(stream).on_console || source.plan.rank == kNoRank) return;
  if (!console_.IsTerminal()) return;  // ShowUnfinished() shows it now and then
  if (status_rank_ >= 0 && OrderOf(source.plan.rank) > OrderOf(status_rank_)) return;
  status_rank_ = source.plan.rank;
  console_.SetStatus(source.plan.prefix + std::string(segment));
}

void LogMux::AwaitEnd(Source& source, OutputStream stream, TimePoint now) {
  source.Of(stream).changed = true;
  if (HasNews(source, stream)) LookLater(now);
}

void LogMux::LookLater(TimePoint now) {
  if (!unfinished_due_.has_value()) unfinished_due_ = now + LookDelay();
}

TimePoint::duration LogMux::LookDelay() const {
  if (console_.IsTerminal()) return kUnfinishedDelay;
  return kUnfinishedInterval;
}

// It may have hidden that of another rank.
void LogMux::EraseStatus(TimePoint now) {
  status_rank_ = -1;
  console_.ClearStatus();
  LookLater(now);
}

// True if the stream's unfinished line is to be shown, unless that of another rank comes first.
bool LogMux::HasNews(const Source& source, OutputStream stream) const {
  const Channel& channel = source.Of(stream);
  if (!channel.changed || source.plan.rank == kNoRank || !source.plan.Of(stream).on_console)
    return false;
  if (console_.IsTerminal() &&
      (channel.splitter->after_return() ||
       (status_rank_ >= 0 && OrderOf(source.plan.rank) > OrderOf(status_rank_)))) {
    return false;
  }
  return channel.splitter->unfinished().find_first_not_of(' ') != std::string_view::npos;
}

// One rank's: on a terminal below the lines, else as a line if it has changed since the last look.
void LogMux::ShowUnfinished(TimePoint now) {
  const bool terminal = console_.IsTerminal();
  unfinished_due_.reset();
  Source* first = nullptr;
  OutputStream first_stream = OutputStream::kOut;
  for (const std::unique_ptr<Source>& source : sources_) {
    for (OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
      if (!source || !HasNews(*source, stream)) continue;
      LookLater(now);
      Channel& channel = source->Of(stream);
      if (now - channel.line_begun < LookDelay()) continue;  // its end may come yet
      if (!terminal) channel.changed = false;
      if (first != nullptr && OrderOf(first->plan.rank) <= OrderOf(source->plan.rank)) continue;
      first = source.get();
      first_stream = stream;
    }
  }
  if (first == nullptr) return;
  Channel& channel = first->Of(first_stream);
  channel.changed = false;
  now_ = now;
  if (terminal) {
    OnProgress(*first, first_stream, channel.splitter->unfinished());
  } else {
    Pass(*first, first_stream, channel.splitter->unfinished());
  }
}

// ---- Equal lines

bool LogMux::Folds(OutputStream stream) const {
  return fold_ == LogFold::kAlways || (fold_ == LogFold::kAuto && console_.IsTerminal(stream));
}

void LogMux::StartFolding(const LogPlan& plan) {
  fold_prefix_ = plan.fold_prefix;
  folding_ = plan.workers.size() > 1 && (Folds(OutputStream::kOut) || Folds(OutputStream::kErr));
  folder_.Start(static_cast<int>(plan.workers.size()));
  for (const std::unique_ptr<Source>& source : sources_) {
    if (!source || source->plan.rank == kNoRank) continue;
    const bool heard = (source->plan.out.on_console && Folds(OutputStream::kOut)) ||
                       (source->plan.err.on_console && Folds(OutputStream::kErr));
    if (!heard) folder_.EndWorker(source->index, now_);
  }
}

void LogMux::EndWorker(const Source& source, TimePoint now) {
  if (source.plan.rank == kNoRank) return;
  if (source.plan.rank == status_rank_) EraseStatus(now);
  Show(folder_.EndWorker(source.index, now));
}

void LogMux::Show(const LineFolder::Groups& groups) {
  for (const LineFolder::Group& group : groups) {
    const Source& first = *sources_[static_cast<std::size_t>(group.workers.front())];
    if (group.workers.size() == 1) {
      ShowLine(group.stream, first.plan.prefix, group.text, group.time);
      continue;
    }
    std::vector<int> ranks;
    for (const int worker : group.workers)
      ranks.push_back(sources_[static_cast<std::size_t>(worker)]->plan.rank);
    ShowLine(group.stream, absl::StrCat(fold_prefix_, "ranks ", RangesText(ranks), ": "),
             group.text, group.time);
  }
}

void LogMux::ShowLine(OutputStream stream, const std::string& prefix, std::string_view line,
                      TimePoint time) {
  if (!stamp_.wanted()) return console_.WriteWorkerLine(stream, prefix, line);
  const auto age = std::chrono::steady_clock::now() - time;
  console_.WriteWorkerLine(stream, stamp_.Of(time, absl::Now() - absl::FromChrono(age)) + prefix,
                           line);
}

std::optional<TimePoint> LogMux::NextDeadline() const {
  return Earliest({folder_.NextDeadline(), unfinished_due_});
}

void LogMux::OnDeadline(TimePoint now) {
  Show(folder_.Expire(now));
  if (unfinished_due_.has_value() && *unfinished_due_ <= now) ShowUnfinished(now);
}

void LogMux::ShowAll() { Show(folder_.Flush()); }

// ---- Files

void LogMux::ShowNotices() {
  for (const std::string& notice : writer_->TakeNotices())
    console_.WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", notice));
}

void LogMux::KeepRecord(int worker, std::string_view record) {
  const int file = sources_[static_cast<std::size_t>(worker)]->record;
  if (file >= 0) writer_->Append(file, record);
}

void LogMux::FinishFiles(int interrupt_fd) {
  writer_->NoteMissing(writer_->Flush(kLogStallTimeout, kLogFlushTimeout, interrupt_fd));
  ShowNotices();
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/log_mux.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/limits.h"
#include "rendezvous/limits.h"

namespace ddprun {
namespace {

const char* FileName(OutputStream stream) {
  return stream == OutputStream::kOut ? "stdout.log" : "stderr.log";
}

}  // namespace

void LastLines::Add(std::string_view line) {
  if (lines_.size() == kLastLinesMax) lines_.pop_front();
  lines_.emplace_back(line.substr(0, kLastLineBytesMax));
}

absl::Status LogMux::StartRound(const std::vector<Worker>& workers,
                                std::vector<WriteEnds>& write_ends) {
  sources_.clear();
  write_ends.clear();
  status_rank_ = -1;
  read_buffer_.resize(kPipeReadBytes);
  for (const Worker& worker : workers) {
    sources_.push_back(std::make_unique<Source>());
    Source& source = *sources_.back();
    source.worker = worker;
    if (!worker.log_folder.empty()) {
      std::error_code error;
      std::filesystem::create_directories(worker.log_folder, error);
      if (error) {
        return absl::UnavailableError(absl::StrCat("cannot make the log folder ", worker.log_folder,
                                                   ": ", error.message(),
                                                   "; name another one with --log-dir"));
      }
    }
    WriteEnds ends;
    absl::Status status = OpenChannel(source, OutputStream::kOut, ends.out);
    if (status.ok()) status = OpenChannel(source, OutputStream::kErr, ends.err);
    if (!status.ok()) return status;
    write_ends.push_back(std::move(ends));
  }
  return absl::OkStatus();
}

absl::Status LogMux::OpenChannel(Source& source, OutputStream stream, OwnedFd& write_end) {
  Channel& channel = stream == OutputStream::kOut ? source.out : source.err;
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot make a pipe for the output of rank ",
                                               source.worker.rank, ": ", std::strerror(errno),
                                               "; see `ulimit -n`"));
  }
  channel.pipe = OwnedFd(fds[0]);
  write_end = OwnedFd(fds[1]);
  // Only the reading end: the worker's end must behave as any program expects.
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  if (!source.worker.log_folder.empty()) {
    const std::string path = absl::StrCat(source.worker.log_folder, "/", FileName(stream));
    // Appending: a second run of the same id must not destroy the first one's log.
    channel.file = OwnedFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!channel.file.valid()) {
      return absl::UnavailableError(absl::StrCat("cannot open the log file ", path, ": ",
                                                 std::strerror(errno),
                                                 "; name another folder with --log-dir"));
    }
  }
  LineSplitter::Sink sink;
  sink.line = [this, &source, stream](std::string_view line) { OnLine(source, stream, line); };
  sink.progress = [this, &source](std::string_view segment) { OnProgress(source, segment); };
  channel.splitter = std::make_unique<LineSplitter>(std::move(sink), kLineBytesMax);
  return absl::OkStatus();
}

LogMux::Channel& LogMux::ChannelOf(int worker, OutputStream stream) {
  Source& source = *sources_[static_cast<std::size_t>(worker)];
  return stream == OutputStream::kOut ? source.out : source.err;
}

std::vector<LogMux::Pipe> LogMux::OpenPipes() const {
  std::vector<Pipe> pipes;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    for (OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
      const Channel& channel = stream == OutputStream::kOut ? sources_[i]->out : sources_[i]->err;
      if (channel.pipe.valid()) pipes.push_back({channel.pipe.get(), static_cast<int>(i), stream});
    }
  }
  return pipes;
}

bool LogMux::Read(int worker, OutputStream stream, TimePoint now) {
  ReadInto(*sources_[static_cast<std::size_t>(worker)], stream, kPipeReadBytes, now);
  return ChannelOf(worker, stream).pipe.valid();
}

void LogMux::Drain(int worker, TimePoint now) {
  for (OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
    ReadInto(*sources_[static_cast<std::size_t>(worker)], stream, kPipeDrainBytesMax, now);
    Channel& channel = ChannelOf(worker, stream);
    if (channel.pipe.valid()) channel.splitter->Flush();  // its last words may lack a line end
  }
}

bool LogMux::ReadInto(Source& source, OutputStream stream, std::size_t bytes_max, TimePoint now) {
  Channel& channel = stream == OutputStream::kOut ? source.out : source.err;
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
    WriteFile(source, channel, bytes, now);
    channel.splitter->Append(bytes);
    bytes_max -= bytes.size();
  }
  return channel.pipe.valid();
}

void LogMux::EndRound(TimePoint now) {
  now_ = now;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    Drain(static_cast<int>(i), now);
    for (Channel* channel : {&sources_[i]->out, &sources_[i]->err}) {
      channel->pipe.Reset();
      channel->file.Reset();
    }
  }
  console_.ClearStatus(now);
  status_rank_ = -1;
}

std::vector<std::string> LogMux::LastLinesOf(int worker) const {
  return sources_[static_cast<std::size_t>(worker)]->last_lines.Take();
}

void LogMux::OnLine(Source& source, OutputStream stream, std::string_view line) {
  if (source.worker.rank == status_rank_) {
    status_rank_ = -1;
    console_.ClearStatus(now_);
  }
  console_.WriteLine(stream, source.worker.prefix + std::string(line), now_);
  source.last_lines.Add(line);
}

void LogMux::OnProgress(Source& source, std::string_view segment) {
  if (status_rank_ >= 0 && source.worker.rank > status_rank_) return;
  status_rank_ = source.worker.rank;
  console_.SetStatus(source.worker.prefix + std::string(segment), now_);
}

void LogMux::WriteFile(Source& source, Channel& channel, std::string_view bytes, TimePoint now) {
  if (!channel.file.valid() || channel.file_failed) return;
  while (!bytes.empty()) {
    const ssize_t written = write(channel.file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      channel.file_failed = true;
      console_.WriteLine(OutputStream::kErr,
                         absl::StrCat("ddprun: the log of rank ", source.worker.rank, " in ",
                                      source.worker.log_folder,
                                      " ends here: ", std::strerror(errno), "; the run goes on"),
                         now);
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace ddprun

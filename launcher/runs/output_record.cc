// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/output_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "proto/output_file.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {
namespace {

constexpr absl::string_view kPrefix = "output-";
constexpr std::size_t kReadBytes = 64u << 10;

// Of equal length, so that they sort by position.
std::string SegmentPath(const std::string& folder, std::uint64_t position) {
  return absl::StrFormat("%s/%s%020d", folder, kPrefix, position);
}

// Their first positions, ascending.
std::vector<std::uint64_t> SegmentsIn(const std::string& folder) {
  std::vector<std::uint64_t> positions;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::uint64_t position = 0;
    if (absl::StartsWith(name, kPrefix) && absl::SimpleAtoi(name.substr(kPrefix.size()), &position))
      positions.push_back(position);
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}

}  // namespace

OutputBounds DefaultOutputBounds() {
  return {.segment_bytes = kRunSegmentBytesMax, .all_bytes = kRunOutputBytesMax};
}

void OutputWriter::Add(FrameKind kind, absl::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kRunFrameBytesMax)))
    pending_ += EncodeFrame(kind, bytes.substr(0, kRunFrameBytesMax));
  // A segment begins with a frame.
  if (position_ - begin_ >= bounds_.segment_bytes) file_.Reset();
}

absl::Status OutputWriter::OpenSegment() {
  OwnedFd file(CreateOwnFile(SegmentPath(folder_, position_), 0600));
  if (!file.valid()) return absl::UnavailableError(ErrnoText(errno));
  file_ = std::move(file);
  begin_ = position_;
  // A whole segment is left out of the bound for the one that grows.
  for (const std::uint64_t first : SegmentsIn(folder_)) {
    if (position_ - first + bounds_.segment_bytes <= bounds_.all_bytes) break;
    unlink(SegmentPath(folder_, first).c_str());
  }
  return absl::OkStatus();
}

absl::Status OutputWriter::Write() {
  const HeldBackSignal no_size_limit(SIGXFSZ);
  while (!pending_.empty()) {
    if (!file_.valid()) {
      if (absl::Status status = OpenSegment(); !status.ok()) return status;
    }
    const ssize_t count = write(file_.get(), pending_.data(), pending_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::UnavailableError(ErrnoText(errno));
    pending_.erase(0, static_cast<std::size_t>(count));
    position_ += static_cast<std::uint64_t>(count);
  }
  return absl::OkStatus();
}

std::optional<std::uint64_t> FirstPosition(const std::string& folder) {
  const std::vector<std::uint64_t> segments = SegmentsIn(folder);
  return segments.empty() ? std::nullopt : std::optional(segments.front());
}

// False: nothing has been written there yet.
absl::StatusOr<bool> OutputReader::OpenSegment() {
  if (file_.valid() && begin_ == read_) return false;
  // The next one begins where this one ends.
  std::uint64_t begin = read_;
  OwnedFd next(open(SegmentPath(folder_, begin).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!next.valid()) {
    struct stat open_one {};
    const bool removed =
        file_.valid() && fstat(file_.get(), &open_one) == 0 && open_one.st_nlink == 0;
    if (file_.valid() && !removed) return false;
    const std::vector<std::uint64_t> segments = SegmentsIn(folder_);
    const auto after = std::upper_bound(segments.begin(), segments.end(), read_);
    if (segments.empty() || (removed && after == segments.end())) return false;
    begin = removed || after == segments.begin() ? *after : *std::prev(after);
    next = OwnedFd(open(SegmentPath(folder_, begin).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (!next.valid()) {
    if (errno == ENOENT) return false;  // removed in between
    return absl::UnavailableError(
        absl::StrCat("cannot read the output in ", folder_, ": ", ErrnoText(errno)));
  }
  if (begin > read_) {
    gap_ += begin - read_;
    position_ = read_ = begin;
  }
  file_ = std::move(next);
  begin_ = begin;
  return true;
}

// `more`: it has read some bytes.
absl::Status OutputReader::Fill(bool& more) {
  std::string bytes(file_.valid() ? kReadBytes : 0, '\0');
  more = false;
  while (!bytes.empty()) {
    const ssize_t count =
        pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(read_ - begin_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot read the output in ", folder_, ": ", ErrnoText(errno)));
    }
    parser_.Add({bytes.data(), static_cast<std::size_t>(count)});
    read_ += static_cast<std::uint64_t>(count);
    more = count > 0;
    break;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<OutputFrame>> OutputReader::Next() {
  while (true) {
    if (gap_ > 0) return OutputFrame{FrameKind::kGap, absl::StrCat(std::exchange(gap_, 0))};
    absl::StatusOr<std::optional<OutputFrame>> frame = parser_.Next();
    if (!frame.ok()) {
      return absl::DataLossError(
          absl::StrCat("the output in ", folder_, " has ", frame.status().message()));
    }
    if (frame->has_value()) {
      position_ += kFrameHeaderBytes + (*frame)->bytes.size();
      return frame;
    }
    bool more = false;
    if (absl::Status status = Fill(more); !status.ok()) return status;
    if (more) continue;
    const absl::StatusOr<bool> opened = OpenSegment();
    if (!opened.ok()) return opened.status();
    if (!*opened) return std::nullopt;
  }
}

void ReadLines(const std::string& folder,
               const std::function<void(OutputStream stream, std::string line)>& take) {
  const std::optional<std::uint64_t> first = FirstPosition(folder);
  if (!first) return;
  OutputReader reader(folder, *first);
  std::map<OutputStream, std::string> rests;
  for (auto frame = reader.Next(); frame.ok() && frame->has_value(); frame = reader.Next()) {
    if (!IsOutput((*frame)->kind)) continue;
    const OutputStream stream =
        (*frame)->kind == FrameKind::kOut ? OutputStream::kOut : OutputStream::kErr;
    std::string& rest = rests[stream];
    std::vector<std::string> lines = absl::StrSplit(rest + (*frame)->bytes, '\n');
    rest = std::move(lines.back());
    lines.pop_back();
    for (std::string& line : lines) take(stream, std::move(line));
  }
  for (auto& [stream, rest] : rests) {
    if (!rest.empty()) take(stream, std::move(rest));
  }
}

}  // namespace ddprun

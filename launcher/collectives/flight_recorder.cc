// SPDX-License-Identifier: Apache-2.0
#include "launcher/collectives/flight_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/base/limits.h"
#include "launcher/collectives/flight_dump.h"
#include "proto/input_file.h"
#include "proto/output_file.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// The first is the name of newer versions, which read both; older ones know the second.
constexpr absl::string_view kDumpPrefix = "TORCH_FR_DUMP_TEMP_FILE=";
constexpr absl::string_view kDumpPrefixBefore = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=";
constexpr absl::string_view kPipePrefix = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=";
constexpr absl::string_view kDumpOnTimeout = "TORCH_NCCL_DUMP_ON_TIMEOUT=";

std::optional<std::string> Value(absl::string_view name, const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    if (absl::StartsWith(entry, name)) return entry.substr(name.size());
  }
  return std::nullopt;
}

// Another one: the file was written meanwhile.
using Stamp = std::tuple<ino_t, off_t, std::int64_t>;

std::int64_t Nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t Nanoseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::optional<Stamp> StampOf(const DumpQuestion& question) {
  struct stat about {};
  if (stat(question.dump.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  const std::int64_t written = Nanoseconds(about.st_mtim);
  if (written < Nanoseconds(question.since - kFileClockErrorMax)) return std::nullopt;
  return Stamp{about.st_ino, about.st_size, written};
}

// False: no process reads it.
bool AskForDump(const std::string& pipe) {
  if (pipe.empty()) return false;
  const OwnedFd fd(open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!fd.valid() || fstat(fd.get(), &about) != 0 || !S_ISFIFO(about.st_mode)) return false;
  return write(fd.get(), "d", 1) == 1 || errno == EAGAIN;
}

struct Dumps {
  DumpedPlaces places;
  std::vector<std::pair<std::string, std::string>> copies;  // the file and its bytes
};

// Absent: it is not complete, or damaged.
std::optional<CollectivePlace> ReadDump(const DumpQuestion& question, Dumps& dumps) {
  absl::StatusOr<std::string> bytes = ReadRegularFile(question.dump, kFlightDumpBytesMax);
  if (!bytes.ok()) return std::nullopt;
  absl::StatusOr<CollectivePlace> place = ParseFlightDump(*bytes, Nanoseconds(question.since));
  if (!place.ok()) return std::nullopt;
  if (!question.copy.empty()) dumps.copies.emplace_back(question.copy, *std::move(bytes));
  return *std::move(place);
}

// Beside the log files, where a person finds them after the run. That disk may hang, and the places
// are known already.
void WriteCopies(Dumps& dumps) {
  if (dumps.copies.empty()) return;
  CallWithDeadline<bool>(kDiskAnswerTimeout / 2, [copies = std::move(dumps.copies)] {
    for (const auto& [path, bytes] : copies) {
      const OwnedFd file(CreateOwnFile(path, 0644));
      if (file.valid()) WriteAll(file.get(), bytes.data(), bytes.size());
    }
    return true;
  });
}

struct Awaited {
  const DumpQuestion* question;
  bool is_asked = false;
  bool is_done = false;
  std::optional<Stamp> seen;  // before it was asked, and then what has been read
};

// True: nothing more will come.
bool Look(Awaited& awaited, bool is_over, Dumps& dumps) {
  const std::optional<Stamp> stamp = StampOf(*awaited.question);
  const bool is_new = stamp.has_value() && stamp != awaited.seen;
  if (is_new || ((is_over || !awaited.is_asked) && stamp.has_value())) {
    awaited.seen = stamp;
    if (auto place = ReadDump(*awaited.question, dumps)) {
      dumps.places[awaited.question->local_rank] = *std::move(place);
      return true;
    }
  }
  return !awaited.is_asked;
}

}  // namespace

FlightFiles AddFlightRecorder(const FlightFolders& folders, const std::string& name, int rank,
                              std::vector<std::string>& environment) {
  FlightFiles files;
  std::optional<std::string> dump = Value(kDumpPrefix, environment);
  if (!dump.has_value()) dump = Value(kDumpPrefixBefore, environment);
  files.own_dump = !dump.has_value();
  if (files.own_dump) {
    dump = absl::StrCat(folders.dumps, "/", name, "_");
    environment.push_back(absl::StrCat(kDumpPrefix, *dump));
    environment.push_back(absl::StrCat(kDumpPrefixBefore, *dump));
  }
  files.dump = absl::StrCat(*dump, rank);
  std::optional<std::string> pipe = Value(kPipePrefix, environment);
  files.own_pipe = !pipe.has_value() && !folders.pipes.empty();
  if (files.own_pipe) {
    pipe = absl::StrCat(folders.pipes, "/", name, "_");
    environment.push_back(absl::StrCat(kPipePrefix, *pipe));
  }
  if (pipe.has_value() && !pipe->empty()) files.pipe = absl::StrCat(*pipe, rank, ".pipe");
  if (!Value(kDumpOnTimeout, environment).has_value())
    environment.push_back(absl::StrCat(kDumpOnTimeout, "1"));
  return files;
}

void RemoveFlightFiles(const FlightFiles& files) {
  if (files.own_dump) unlink(files.dump.c_str());
  if (files.own_pipe) unlink(files.pipe.c_str());
}

DumpedPlaces ReadDumps(const std::vector<DumpQuestion>& questions, std::chrono::milliseconds limit,
                       int ended) {
  const Clock::time_point deadline = Clock::now() + limit;
  Dumps dumps;
  std::vector<Awaited> awaited;
  for (const DumpQuestion& question : questions) {
    Awaited one{.question = &question};
    if (question.local_rank != ended) {
      awaited.push_back(one);
    } else if (Look(one, true, dumps); dumps.places.empty()) {
      return {};
    }
  }
  for (Awaited& one : awaited) {
    one.seen = StampOf(*one.question);
    one.is_asked = AskForDump(one.question->pipe);
  }
  bool waits = true;
  while (waits) {
    const bool is_over = Clock::now() >= deadline;
    waits = false;
    for (Awaited& one : awaited) {
      one.is_done = one.is_done || Look(one, is_over, dumps) || is_over;
      waits = waits || !one.is_done;
    }
    if (waits) std::this_thread::sleep_for(kDumpLookInterval);
  }
  WriteCopies(dumps);
  return std::move(dumps.places);
}

}  // namespace ddprun

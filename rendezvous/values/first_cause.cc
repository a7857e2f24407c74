// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/first_cause.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

// Messages about a peer that is gone, in lower case, by their source.
constexpr std::array<absl::string_view, 25> kPeerIsGone = {
    // The kernel (ECONNRESET, EPIPE, ECONNREFUSED, ECONNABORTED), repeated by every library.
    "connection reset by peer",
    "broken pipe",
    "connection refused",
    "software caused connection abort",
    // Gloo: transport/tcp/{pair,unbound_buffer,device}.cc.
    "connection closed by peer",
    "socket closed",
    "timed out waiting",
    "application timeout caused pair closure",
    "connectfullmesh failed",
    // c10d: TCPStore.cpp, TCPStoreBackend.cpp, socket.cpp.
    "connection was likely closed",
    "remote peer closed the connection",
    "wait timeout after",
    "socket timeout",
    "waiting for clients",
    "client socket has timed out",
    // NCCL: net_socket.cc, socket.cc, ncclGetErrorString(); ProcessGroupNCCL.cpp.
    "connection closed by remote peer",
    "ncclremoteerror",
    "remote process exiting",
    "remote process has terminated",
    "remote error detected from rank",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
    // Our own store: kv_store.cc, store_coalescer.cc, store_client.cc.
    "the store operation belongs to round",
    "did not answer within",
    "the rendezvous service could not be reached",
};

// Collectives of c10d, NCCL and Gloo, in lower case.
constexpr std::array<absl::string_view, 28> kCollectives = {
    "all_reduce",
    "allreduce",
    "reduce",
    "broadcast",
    "barrier",
    "all_gather",
    "allgather",
    "gather",
    "scatter",
    "reduce_scatter",
    "reducescatter",
    "all_to_all",
    "alltoall",
    "send",
    "recv",
    "isend",
    "irecv",
    "sendrecv",
    "allreduce_coalesced",
    "all_reduce_coalesced",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "monitored_barrier",
    "allgather_coalesced",
    "batch_isend_irecv",
    "wait",
    "sync",
};

constexpr absl::string_view kTraceback = "Traceback (most recent call last)";
// Between the tracebacks of one chain of exceptions, oldest first.
constexpr absl::string_view kWhileHandling = "During handling of the above exception";
constexpr absl::string_view kDirectCause = "The above exception was the direct cause";

bool SaysPeerIsGone(absl::string_view line) {
  const std::string small = absl::AsciiStrToLower(line);
  return std::any_of(kPeerIsGone.begin(), kPeerIsGone.end(),
                     [&small](absl::string_view words) { return absl::StrContains(small, words); });
}

using Lines = std::vector<absl::string_view>;

// The first exception of the last chain, which is what went wrong first. All lines if there is no
// traceback.
Lines FirstOfLastChain(const Lines& lines) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (absl::StrContains(lines[i], kTraceback)) begins.push_back(i);
  }
  if (begins.empty()) return lines;
  std::size_t first = begins.size() - 1;
  const auto follows_another = [&](std::size_t from, std::size_t to) {
    return std::any_of(lines.begin() + static_cast<std::ptrdiff_t>(from),
                       lines.begin() + static_cast<std::ptrdiff_t>(to), [](absl::string_view line) {
                         return absl::StrContains(line, kWhileHandling) ||
                                absl::StrContains(line, kDirectCause);
                       });
  };
  while (first > 0 && follows_another(begins[first - 1], begins[first])) --first;
  // The lines do not reach back to the begin of the chain, only to the end of its first exception.
  const bool cut = first == 0 && follows_another(0, begins[0]);
  const std::size_t begin = cut ? 0 : begins[first];
  const std::size_t end = cut                         ? begins[0]
                          : first + 1 < begins.size() ? begins[first + 1]
                                                      : lines.size();
  return Lines(lines.begin() + static_cast<std::ptrdiff_t>(begin),
               lines.begin() + static_cast<std::ptrdiff_t>(end));
}

// A failure record says more than the end of the output.
Nature NatureOfWords(const Failure& failure) {
  Lines lines;
  if (!failure.traceback.empty()) {
    lines = absl::StrSplit(failure.traceback, '\n');
  } else if (!failure.message.empty()) {
    lines = absl::StrSplit(failure.message, '\n');
  } else {
    lines.assign(failure.last_lines.begin(), failure.last_lines.end());
  }
  lines = FirstOfLastChain(lines);
  return std::any_of(lines.begin(), lines.end(), SaysPeerIsGone) ? Nature::kSymptom
                                                                 : Nature::kOrigin;
}

}  // namespace

Nature NatureOf(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kWorkerExited:
      return NatureOfWords(failure);
    case FailureKind::kWorkerSignaled:
      // An uncaught exception, or a watchdog: there is a message.
      if (failure.signal == SIGABRT) return NatureOfWords(failure);
      // The reader of its pipe is gone.
      return failure.signal == SIGPIPE ? Nature::kSymptom : Nature::kOrigin;
    case FailureKind::kCollectiveFailed:
      return Nature::kSymptom;
    default:
      return Nature::kOrigin;
  }
}

bool MayBeOfEarlyEnd(const Failure& failure) {
  return failure.hang.has_value() || NatureOf(failure) == Nature::kSymptom;
}

bool EndsInTraceback(const std::vector<std::string>& last_lines) {
  bool in_traceback = false;
  bool had_exception = false;
  for (absl::string_view line : last_lines) {
    // PyTorch writes "[rank0]: " before each line of it, and C++ threads warn after it.
    const std::size_t prefix = absl::StartsWith(line, "[rank") ? line.find("]:") : line.npos;
    if (prefix != line.npos) line.remove_prefix(prefix + 2);
    if (prefix != line.npos) absl::ConsumePrefix(&line, " ");
    if (absl::StartsWith(line, kTraceback)) {
      in_traceback = true;
      had_exception = false;
    } else if (in_traceback && !line.empty() && line.front() != ' ' &&
               !absl::StartsWith(line, "[W")) {
      in_traceback = !had_exception;  // other output after it: the process lived on
      had_exception = true;
    }
  }
  return in_traceback && had_exception;
}

bool WaitsForPeers(absl::string_view section) {
  const std::string small = absl::AsciiStrToLower(section);
  const std::vector<absl::string_view> words =
      absl::StrSplit(small, absl::ByAnyChar(" \t,;:+/|()[]<>.-"), absl::SkipEmpty());
  return std::any_of(words.begin(), words.end(), [](absl::string_view word) {
    return std::find(kCollectives.begin(), kCollectives.end(), word) != kCollectives.end();
  });
}

static bool IsBehind(std::int64_t step_a, absl::string_view section_a, std::int64_t step_b,
                     absl::string_view section_b) {
  if (step_a >= 0 && step_b >= 0 && step_a != step_b) return step_a < step_b;
  return !WaitsForPeers(section_a) && WaitsForPeers(section_b);
}

bool IsBehind(const Progress& a, const Progress& b) {
  return IsBehind(a.step, a.section, b.step, b.section);
}

static const CollectivePlace* PlaceOf(const Failure& failure) {
  for (const RanksInPlace& entry : failure.places) {
    if (Contains(entry.ranks, failure.rank)) return &entry.place;
  }
  return nullptr;
}

// Compares two hung workers.
static bool IsBehind(const Failure& a, const Failure& b) {
  const Hang& ours = *a.hang;
  const Hang& theirs = *b.hang;
  if (IsBehind(ours.step, ours.section, theirs.step, theirs.section)) return true;
  if (IsBehind(theirs.step, theirs.section, ours.step, ours.section)) return false;
  const CollectivePlace* place = PlaceOf(a);
  const CollectivePlace* other = PlaceOf(b);
  return place != nullptr && other != nullptr && IsBehind(*place, *other);
}

void LearnFrom(const Failure& other, Failure& cause) {
  MergePlaces(other.places, cause.places);
  if (!cause.hang || !other.hang) return;
  cause.hang->others_step =
      std::max({cause.hang->others_step, other.hang->step, other.hang->others_step});
}

bool TakesThePlaceOf(const Failure& later, const Failure& cause) {
  if (later.hang && cause.hang) return IsBehind(later, cause);
  if (later.kind == FailureKind::kWorkerEndedEarly && MayBeOfEarlyEnd(cause)) return true;
  return NatureOf(cause) == Nature::kSymptom && NatureOf(later) == Nature::kOrigin;
}

}  // namespace ddprun

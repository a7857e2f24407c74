// SPDX-License-Identifier: Apache-2.0
#include "worker/library/ddp/shm_group.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ddprun/detail/interrupt.h"
#include "ddprun/detail/world_access.h"
#include "proto/output_file.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that has ended is seen at the latest so long after it is waited for.
constexpr std::chrono::milliseconds kLookInterval{100};

constexpr char kUnknownHost[] = "?";

// Where process ids mean the same: this boot of this machine, and this namespace. A rank that is
// out of descriptors cannot know, and must not seem to be elsewhere.
std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) return kUnknownHost;
  char space[64] = {};
  const auto length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return boot + (length > 0 ? space : "?");
}

void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t seen,
               std::chrono::nanoseconds time) {
  const timespec relative{.tv_sec = static_cast<std::time_t>(time.count() / 1'000'000'000),
                          .tv_nsec = static_cast<long>(time.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

void FutexWake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Numbers wrap around after 2^32 operations.
bool Reached(std::uint32_t seen, std::uint32_t wanted) {
  return static_cast<std::int32_t>(seen - wanted) >= 0;
}

}  // namespace

// At the beginning of each rank's memory. The counts have cache lines of their own.
struct ShmGroup::Words {
  std::uint64_t token;  // equal to the one in the store, so this is the memory it announced
  alignas(64) Word announced;
  alignas(64) Word finished;
  alignas(64) std::uint64_t offsets[kOpsMax];
};

struct ShmGroup::Mapping {
  std::byte* base = nullptr;
  OwnedFd process;  // a pidfd, which can be read from once the process has ended

  Words& words() const { return *reinterpret_cast<Words*>(base); }
};

namespace {

constexpr std::size_t kHeaderBytes = 4 * kShmPageBytes;

// Published by each rank through the store.
struct Announcement {
  std::string host;
  pid_t pid = 0;
  int fd = -1;
  std::uint64_t token = 0;

  std::string ToText() const {
    std::ostringstream text;
    text << host << ' ' << pid << ' ' << fd << ' ' << token;
    return text.str();
  }
  static Announcement FromText(const std::string& text) {
    Announcement announcement;
    std::istringstream(text) >> announcement.host >> announcement.pid >> announcement.fd >>
        announcement.token;
    return announcement;
  }
};

std::byte* MapMemory(int fd, std::size_t size) {
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

// What may be otherwise a moment later, unlike a lack of permission or another machine.
bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EFBIG ||
         error == ENOSPC || error == EAGAIN;
}

std::string Key(const std::string& prefix, int rank) { return prefix + std::to_string(rank); }

}  // namespace

std::unique_ptr<ShmGroup> ShmGroup::Form(World& world, std::size_t bytes, bool repeatable) {
  const std::string prefix =
      "ddprun/shared_node/" + std::to_string(WorldAccess::NextNumber(world)) + "/";
  static_assert(sizeof(Words) <= kHeaderBytes);
  std::unique_ptr<ShmGroup> node(new ShmGroup(world.rank(), bytes));
  node->ranks_.resize(static_cast<std::size_t>(world.size()));
  if (!node->Map(world, prefix, repeatable)) return nullptr;
  if (world.interrupt())
    node->stopping_ = world.interrupt()->Register([group = node.get()] { group->Stop(); });
  return node;
}

ShmGroup::ShmGroup(int rank, std::size_t bytes) : rank_(rank), bytes_(bytes) {}

ShmGroup::~ShmGroup() {
  stopping_.reset();
  for (const Mapping& mapping : ranks_) {
    if (mapping.base != nullptr) munmap(mapping.base, kHeaderBytes + bytes_);
  }
}

bool ShmGroup::Map(World& world, const std::string& key_prefix, bool repeatable) {
  const std::size_t size = kHeaderBytes + bytes_;
  const HeldBackSignal no_sigxfsz(SIGXFSZ);  // memory counts as a file
  const OwnedFd memory(memfd_create("ddprun-gradients", MFD_CLOEXEC));
  Mapping& ours = ranks_[static_cast<std::size_t>(rank_)];
  if (memory.valid() && ftruncate(memory.get(), static_cast<off_t>(size)) == 0)
    ours.base = MapMemory(memory.get(), size);
  bool mapped = ours.base != nullptr;
  int error = mapped ? 0 : errno;
  Announcement own{.host = HostIdentity(), .pid = getpid()};
  if (mapped && own.host == kUnknownHost) {
    mapped = false;
    error = EMFILE;
  }
  if (mapped) {
    own.fd = memory.get();
    std::random_device random;
    own.token = ours.words().token = (std::uint64_t{random()} << 32) | random();
  }
  world.store()->set(Key(key_prefix, rank_), own.ToText());
  // Now no rank waits for another one at the store, where a wait does not end with the round.
  world.Barrier();
  std::vector<Announcement> all;
  std::set<std::string> hosts;
  for (int rank = 0; rank < world.size(); ++rank) {
    all.push_back(Announcement::FromText(world.store()->get_to_str(Key(key_prefix, rank))));
    if (all.back().host != kUnknownHost) hosts.insert(all.back().host);
  }
  if (hosts.size() > 1) return false;  // all ranks see that
  for (int rank = 0; rank < world.size(); ++rank) {
    const Announcement& peer = all[static_cast<std::size_t>(rank)];
    Mapping& mapping = ranks_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || peer.fd < 0 || !mapped) continue;
    errno = 0;
    mapping.process = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
    const std::string path = "/proc/" + std::to_string(peer.pid) + "/fd/" + std::to_string(peer.fd);
    const OwnedFd theirs(open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    mapped = mapping.process.valid() && theirs.valid() && fstat(theirs.get(), &status) == 0 &&
             static_cast<std::size_t>(status.st_size) == size;
    if (mapped) mapping.base = MapMemory(theirs.get(), size);
    mapped = mapping.base != nullptr && mapping.words().token == peer.token;
    if (!mapped) error = errno;
  }
  // No rank closes its memory before all have opened it.
  if (world.OnAllRanks(mapped)) return true;
  if (!repeatable) return false;
  const bool short_here = !mapped && IsShortage(error);
  // With none that is so at any time; with all there is a limit for the whole run.
  if (world.OnAllRanks(!short_here) || world.OnAllRanks(short_here)) return false;
  if (!short_here)
    throw PeerError("another rank cannot map the memory that this machine's ranks share");
  throw std::runtime_error(
      "the memory that this machine's ranks share cannot be mapped (" +
      std::generic_category().message(error) +
      "), and in deterministic training gradients are always added there; raise that limit");
}

int ShmGroup::size() const { return static_cast<int>(ranks_.size()); }

std::byte* ShmGroup::data(int rank) const {
  return ranks_[static_cast<std::size_t>(rank)].base + kHeaderBytes;
}

void ShmGroup::Announce(std::uint32_t op, std::uint64_t offset) {
  Words& words = ranks_[static_cast<std::size_t>(rank_)].words();
  words.offsets[op % kOpsMax] = offset;
  words.announced.store(op + 1, std::memory_order_release);
  FutexWake(words.announced);
}

void ShmGroup::Finish(std::uint32_t op) {
  Words& words = ranks_[static_cast<std::size_t>(rank_)].words();
  words.finished.store(op + 1, std::memory_order_release);
  FutexWake(words.finished);
}

std::vector<std::uint64_t> ShmGroup::AwaitAnnounced(std::uint32_t op,
                                                    std::chrono::milliseconds timeout) {
  Await(op + 1, &Words::announced, timeout);
  std::vector<std::uint64_t> offsets;
  for (const Mapping& mapping : ranks_) offsets.push_back(mapping.words().offsets[op % kOpsMax]);
  return offsets;
}

void ShmGroup::AwaitFinished(std::uint32_t op, std::chrono::milliseconds timeout) {
  Await(op + 1, &Words::finished, timeout);
}

// A waiter that has looked at stopped_ may not sleep yet, so it is woken until it has left.
void ShmGroup::Stop() {
  constexpr std::chrono::microseconds kPause{50};
  stopped_ = true;
  while (waiting_ > 0) {
    for (const Mapping& mapping : ranks_) {
      FutexWake(mapping.words().announced);
      FutexWake(mapping.words().finished);
    }
    std::this_thread::sleep_for(kPause);
  }
}

void ShmGroup::Await(std::uint32_t count, Word Words::*word, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  ++waiting_;
  const std::unique_ptr<std::atomic<int>, void (*)(std::atomic<int>*)> leaving(
      &waiting_, [](std::atomic<int>* waiting) { --*waiting; });
  for (int rank = 0; rank < size(); ++rank) {
    Word& theirs = ranks_[static_cast<std::size_t>(rank)].words().*word;
    while (true) {
      const std::uint32_t seen = theirs.load(std::memory_order_acquire);
      if (Reached(seen, count)) break;
      if (stopped_) throw PeerError("the averaging of gradients was stopped");
      const auto now = Clock::now();
      if (now >= deadline) {
        throw PeerError("rank " + std::to_string(rank) + " did not bring its gradients within " +
                        std::to_string(timeout.count() / 1000) +
                        " s; look at what that rank does, or raise the timeout");
      }
      FutexWait(theirs, seen, std::min<std::chrono::nanoseconds>(kLookInterval, deadline - now));
      // A count that the rank stored before it ended is valid.
      if (theirs.load(std::memory_order_acquire) == seen) CheckAlive();
    }
  }
}

// Checks all ranks: the awaited one may itself be waiting for a rank that has ended.
void ShmGroup::CheckAlive() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    pollfd ended{.fd = ranks_[static_cast<std::size_t>(rank)].process.get(), .events = POLLIN};
    if (poll(&ended, 1, 0) <= 0) continue;
    throw PeerError("rank " + std::to_string(rank) +
                    " has ended while gradients were averaged; its own output says why");
  }
}

}  // namespace ddprun

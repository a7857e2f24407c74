// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_facts.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/placement/devices.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/program.h"
#include "proto/version.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

// capabilities(7)
constexpr int kCapSysPtrace = 19;
// "No limit" in cgroups v1 is a number close to the largest one.
constexpr std::int64_t kNoLimitMin = std::int64_t{1} << 60;

std::int64_t NumberOf(rlim_t limit) {
  return limit == RLIM_INFINITY ? kNoNumber : static_cast<std::int64_t>(limit);
}

void CollectLimits(NodeFacts& facts) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.nofile = NumberOf(limit.rlim_cur);
    facts.nofile_hard = NumberOf(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.memlock = NumberOf(limit.rlim_cur);
  // The kernel does not apply it to root.
  if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0)
    facts.processes = NumberOf(limit.rlim_cur);
  if (getrlimit(RLIMIT_CORE, &limit) == 0) facts.core_files = limit.rlim_cur != 0;
  std::error_code error;
  facts.rdma = !std::filesystem::is_empty("/sys/class/infiniband", error) && !error;
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0 && access("/dev/shm", W_OK) == 0) {
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
}

std::optional<std::int64_t> NumberIn(const std::string& path) {
  std::int64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadSmallFile(path)), &number) || number < 0)
    return std::nullopt;
  return number;
}

void KeepLeast(std::int64_t& least, std::int64_t number) {
  least = least == kNoNumber ? number : std::min(least, number);
}

// Reads one cgroup on the path to the root.
void CollectMemoryOf(const std::string& folder, const char* limit_file, const char* used_file,
                     NodeFacts& facts) {
  const std::optional<std::int64_t> limit = NumberIn(folder + limit_file);
  const std::optional<std::int64_t> used = NumberIn(folder + used_file);
  if (!limit.has_value() || !used.has_value() || *limit >= kNoLimitMin) return;
  // The page cache can be reclaimed.
  const std::string stat = ReadSmallFile(folder + "/memory.stat");
  std::int64_t free = *limit - *used;
  for (const char* name : {"inactive_file", "active_file"})
    free += std::max<std::int64_t>(0, NumberAfter(stat, name).value_or(0));
  KeepLeast(facts.memory_limit, *limit);
  KeepLeast(facts.memory_free, std::clamp<std::int64_t>(free, 0, *limit));
}

void CollectMemory(NodeFacts& facts) {
  const auto available = NumberAfter(ReadSmallFile("/proc/meminfo"), "MemAvailable:");
  if (available.has_value()) facts.memory_free = *available * 1024;
  // In a container, its own cgroup (v1) is mounted at the root.
  CollectMemoryOf("/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                  facts);
  for (std::filesystem::path folder = OwnCgroup(); folder.has_relative_path();
       folder = folder.parent_path()) {
    CollectMemoryOf(folder.string(), "/memory.max", "/memory.current", facts);
    const std::optional<std::int64_t> pids_max = NumberIn((folder / "pids.max").string());
    const std::optional<std::int64_t> pids = NumberIn((folder / "pids.current").string());
    if (pids_max.has_value() && pids.has_value())
      KeepLeast(facts.processes_left, std::max<std::int64_t>(0, *pids_max - *pids));
  }
}

// As RunCgroup does, but without touching cgroups of earlier runs.
bool CanMakeCgroup() {
  const std::string parent = OwnCgroup();
  if (parent.empty() || access(parent.c_str(), W_OK) != 0) return false;
  const std::string path = absl::StrCat(parent, "/doctor-", getpid());
  if (mkdir(path.c_str(), 0755) != 0) return false;
  const bool can = access((path + "/cgroup.kill").c_str(), W_OK) == 0;
  rmdir(path.c_str());
  return can;
}

void CollectKernel(NodeFacts& facts) {
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  facts.ptrace_scope =
      static_cast<int>(NumberIn("/proc/sys/kernel/yama/ptrace_scope").value_or(kNoNumber));
  for (const absl::string_view line : absl::StrSplit(ReadSmallFile("/proc/self/status"), '\n')) {
    std::uint64_t capabilities = 0;
    if (absl::StartsWith(line, "CapEff:") &&
        absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line.substr(7)), &capabilities))
      facts.may_ptrace = ((capabilities >> kCapSysPtrace) & 1) != 0;
  }
  facts.cgroup = CanMakeCgroup();
  facts.overcommit = static_cast<int>(NumberIn("/proc/sys/vm/overcommit_memory").value_or(0));
  facts.core_pattern =
      std::string(absl::StripAsciiWhitespace(ReadSmallFile("/proc/sys/kernel/core_pattern")));
}

void CollectWorkers(const Options& options, NodeFacts& facts) {
  const absl::StatusOr<Machine> machine = ReadMachine(options, ReadVariable);
  absl::Status status = machine.status();
  if (machine.ok()) {
    facts.cpus = machine->cpus;
    facts.cpu_quota = machine->cpu_quota.value_or(0);
    const auto places = PlaceWorkers(options, *machine);
    status = places.status();
    if (places.ok()) facts.workers = static_cast<int>(places->size());
  }
  facts.workers_error = std::string(status.message());
}

constexpr std::size_t kHashBytes = 8;

// 16 digits of SHA-256; "" on failure.
std::string HashOf(absl::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  if (EVP_Digest(bytes.data(), bytes.size(), digest, nullptr, EVP_sha256(), nullptr) != 1)
    return "";
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), kHashBytes});
}

void CollectEnvironment(NodeFacts& facts) {
  for (const std::string& entry : OwnEnviron()) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    if (facts.environment.size() >= kFactVariablesMax) return;
    const absl::string_view name = absl::string_view(entry).substr(0, equals);
    const auto value = ShownVariable(name, absl::string_view(entry).substr(equals + 1));
    if (value.has_value()) facts.environment[std::string(name)] = *value;
  }
}

void CollectProgram(const Options& options, const std::string& own_folder, NodeFacts& facts) {
  std::error_code error;
  facts.folder = std::filesystem::current_path(error).string();
  if (options.program.empty()) return;
  facts.program = options.program.front();
  const absl::StatusOr<Program> program = ResolveProgram(options, own_folder, ReadVariable);
  if (!program.ok()) {
    facts.program_error = std::string(program.status().message());
    return;
  }
  // For a script its own file, not the Python that runs it.
  const bool is_file = std::filesystem::is_regular_file(options.program.front(), error);
  facts.program_hash =
      HashOf(MappedFile(is_file ? options.program.front() : program->path).bytes());
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  const std::uint64_t size =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(info.st_size), kHashedBytesMax);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data != MAP_FAILED) bytes_ = {static_cast<const char*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

std::optional<std::string> ShownVariable(absl::string_view name, absl::string_view value) {
  if (NamesThisMachine(name)) return std::nullopt;
  if ((ConfiguresLibraries(name) || name == "LD_LIBRARY_PATH") &&
      value.size() <= kFactValueBytesMax)
    return std::string(value);
  return absl::StrCat(std::string(1, kHashMark), HashOf(value));
}

void CollectMachineFacts(const Options& options, const std::string& own_folder, NodeFacts& facts) {
  facts.version = kSoftwareVersion;
  CollectLimits(facts);
  CollectMemory(facts);
  CollectKernel(facts);
  CollectWorkers(options, facts);
  CollectGpusAndLibraries(own_folder, facts);
  CollectEnvironment(facts);
  CollectProgram(options, own_folder, facts);
  if (!options.doctor.has_value() || options.doctor->python.empty()) return;
  CollectPackages(options.doctor->python, facts);
}

}  // namespace ddprun

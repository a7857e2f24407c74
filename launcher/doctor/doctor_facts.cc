// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_facts.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/program.h"
#include "proto/version.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

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
  CollectLimitsAndKernel(facts);
  CollectWorkers(options, facts);
  CollectGpusAndLibraries(own_folder, facts);
  CollectEnvironment(facts);
  CollectProgram(options, own_folder, facts);
  if (!options.doctor.has_value() || options.doctor->python.empty()) return;
  CollectPackages(options.doctor->python, facts);
}

}  // namespace ddprun

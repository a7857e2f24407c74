// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_facts.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/doctor/doctor_parts.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/program.h"
#include "proto/version.h"

namespace ddprun {
namespace {

constexpr std::size_t kHashBytes = 8;
constexpr std::size_t kHashBlockBytes = 1u << 20;

class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    good_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  void Add(absl::string_view bytes) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  std::string Digits() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (!good_ || EVP_DigestFinal_ex(context_.get(), digest, &size) != 1 || size < kHashBytes)
      return "";
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest), kHashBytes});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  bool good_ = false;
};

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
  // Of a script the script, not the Python that runs it.
  const bool is_file = std::filesystem::is_regular_file(options.program.front(), error);
  facts.program_hash = HashOfFile(is_file ? options.program.front() : program->path);
}

}  // namespace

std::string HashOfText(absl::string_view text) {
  Hasher hasher;
  hasher.Add(text);
  return hasher.Digits();
}

std::string HashOfFile(const std::string& path) {
  Hasher hasher;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return "";
  std::string block(kHashBlockBytes, '\0');
  for (std::uint64_t done = 0; done < kHashedBytesMax && file.good(); done += block.size()) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hasher.Add({block.data(), static_cast<std::size_t>(file.gcount())});
  }
  return hasher.Digits();
}

std::optional<std::string> ShownVariable(absl::string_view name, absl::string_view value) {
  if (NamesThisMachine(name)) return std::nullopt;
  for (const char* start : {"NCCL_", "GLOO_", "OMP_", "MKL_", "TORCH_", "CUDA_", "FI_", "UCX_",
                            "PYTORCH_", "NVIDIA_"}) {
    if (absl::StartsWith(name, start) && value.size() <= kFactValueBytesMax)
      return std::string(value);
  }
  if (name == "LD_LIBRARY_PATH" && value.size() <= kFactValueBytesMax) return std::string(value);
  return absl::StrCat(std::string(1, kHashMark), HashOfText(value));
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

// SPDX-License-Identifier: Apache-2.0
// GPUs, libraries and Python packages, for doctor_facts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/placement/devices.h"
#include "proto/text.h"

namespace ddprun {
namespace {

constexpr std::size_t kLoaderCacheBytesMax = 16u << 20;
constexpr std::size_t kTrainBytesMax = 64u << 20;

// The zero-terminated strings that contain `wanted`.
std::vector<std::string> TextsWith(const std::string& bytes, const std::string& wanted) {
  std::vector<std::string> texts;
  for (std::size_t at = bytes.find(wanted); at != std::string::npos;
       at = bytes.find(wanted, at + 1)) {
    const std::size_t start = at == 0 ? 0 : bytes.rfind('\0', at - 1) + 1;
    texts.push_back(bytes.substr(start, bytes.find('\0', at) - start));
  }
  return texts;
}

// Searches the folders of the loader and of `train`, the likeliest first.
class Libraries {
 public:
  explicit Libraries(const std::string& own_folder) {
    const std::string path = ReadVariable("LD_LIBRARY_PATH").value_or("");
    for (const absl::string_view folder : absl::StrSplit(path, ':', absl::SkipEmpty()))
      folders_.emplace_back(folder);
    for (const char* more : {"", "/../lib", "/lib"}) folders_.push_back(own_folder + more);
    // The run path (RPATH) of `train` names the folder of LibTorch at build time.
    for (const std::string& list :
         TextsWith(ReadSmallFile(own_folder + "/train", kTrainBytesMax), "torch/lib")) {
      for (const absl::string_view folder : absl::StrSplit(list, ':', absl::SkipEmpty())) {
        if (absl::StartsWith(folder, "/")) folders_.emplace_back(folder);
      }
    }
    cache_ = ReadSmallFile("/etc/ld.so.cache", kLoaderCacheBytesMax);
  }

  std::string Find(const std::string& name) const {
    for (const std::string& folder : folders_) {
      const std::string path = absl::StrCat(folder, "/", name);
      if (access(path.c_str(), R_OK) == 0) return path;
    }
    for (const std::string& text : TextsWith(cache_, absl::StrCat("/", name))) {
      if (absl::StartsWith(text, "/") && absl::EndsWith(text, absl::StrCat("/", name)) &&
          access(text.c_str(), R_OK) == 0)
        return text;
    }
    return "";
  }

 private:
  std::vector<std::string> folders_;
  std::string cache_;
};

std::string RealPath(const std::string& path) {
  std::error_code error;
  return std::filesystem::canonical(path, error).string();
}

// "2.11.0+cu130", from the version file of a LibTorch archive or of a wheel.
std::string TorchVersionNear(const std::string& library) {
  const std::filesystem::path root = std::filesystem::path(library).parent_path().parent_path();
  const std::string build = ReadSmallFile((root / "build-version").string());
  if (!build.empty()) return std::string(absl::StripAsciiWhitespace(build));
  for (absl::string_view line :
       absl::StrSplit(ReadSmallFile((root / "version.py").string()), '\n')) {
    if (!absl::StartsWith(line, "__version__")) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '\'');
    if (parts.size() >= 3) return std::string(parts[1]);
  }
  return "";
}

// The version after "libcuda.so." in the name of the file that the link leads to.
std::string VersionInName(const std::string& path, absl::string_view start) {
  const std::string name = std::filesystem::path(RealPath(path)).filename().string();
  absl::string_view rest = name;
  return absl::StartsWith(rest, start) ? std::string(rest.substr(start.size())) : "";
}

void CollectLibraries(const std::string& own_folder, NodeFacts& facts) {
  const Libraries libraries(own_folder);
  const std::string unknown = "of unknown version";
  const auto add = [&](const char* what, const std::string& path, const std::string& version) {
    if (!path.empty()) facts.libraries[what] = version.empty() ? unknown : version;
  };
  std::string path = libraries.Find("libcuda.so.1");
  add("CUDA driver", path, VersionInName(path, "libcuda.so."));
  path = libraries.Find("libtorch_cpu.so");
  add("LibTorch", path, TorchVersionNear(path));
  path = libraries.Find("libnccl.so.2");
  if (!path.empty()) add("NCCL", path, NcclVersionIn(MappedFile(path).bytes()));
}

void CollectGpus(NodeFacts& facts) {
  facts.driver = DriverVersionIn(ReadSmallFile("/proc/driver/nvidia/version"));
  facts.gpus = CountGpuDevices("");
  std::set<std::string> models;
  std::error_code error;
  for (std::filesystem::directory_iterator gpu("/proc/driver/nvidia/gpus", error), end;
       !error && gpu != end; gpu.increment(error)) {
    const std::string text = ReadSmallFile((gpu->path() / "information").string());
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (absl::StartsWith(line, "Model:"))
        models.emplace(absl::StripAsciiWhitespace(line.substr(std::strlen("Model:"))));
    }
  }
  facts.gpu_models.assign(models.begin(), models.end());
}

constexpr char kAskPackages[] =
    "import importlib.metadata as m, platform\n"
    "print('python', platform.python_version())\n"
    "for d in m.distributions():\n"
    "  n = (d.metadata['Name'] or '').lower()\n"
    "  if n in ('torch', 'numpy') or n.startswith('nvidia-nccl'): print(n, d.version)\n";

// The stdout of Python for that code; absent: it could not be started, failed, or took longer than
// kPythonTimeout (timeout(1) then kills it).
std::optional<std::string> OutputOfPython(const std::string& python, const std::string& code) {
  const std::string command =
      absl::StrCat("exec timeout -s KILL ", kPythonTimeout.count(), " ", ShellQuote(python), " -c ",
                   ShellQuote(code), " </dev/null 2>/dev/null");
  std::FILE* const output = popen(command.c_str(), "re");
  if (output == nullptr) return std::nullopt;
  std::string text(kPythonBytesMax, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), output));
  return pclose(output) == 0 ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace

std::string NcclVersionIn(absl::string_view bytes) {
  constexpr absl::string_view kWords = "NCCL version ";
  for (std::size_t at = bytes.find(kWords); at != absl::string_view::npos;
       at = bytes.find(kWords, at + 1)) {
    const absl::string_view rest = bytes.substr(at + kWords.size(), 32);
    const std::size_t end = std::min(rest.find_first_not_of("0123456789."), rest.size());
    // Skips the format string of another message ("NCCL version %d.%d").
    if (end >= 3 && absl::StrContains(rest.substr(0, end), '.'))
      return std::string(rest.substr(0, end));
  }
  return "";
}

std::string DriverVersionIn(absl::string_view text) {
  const absl::string_view line = text.substr(0, text.find('\n'));
  for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \t"))) {
    if (absl::StrContains(word, '.') &&
        word.find_first_not_of("0123456789.") == absl::string_view::npos)
      return std::string(word);
  }
  return "";
}

void CollectGpusAndLibraries(const std::string& own_folder, NodeFacts& facts) {
  CollectGpus(facts);
  CollectLibraries(own_folder, facts);
}

void CollectPackages(const std::string& python, NodeFacts& facts) {
  const std::optional<std::string> output = OutputOfPython(python, kAskPackages);
  if (!output.has_value()) {
    facts.packages["python"] = absl::StrCat("no answer of ", python);
    return;
  }
  for (const absl::string_view line : absl::StrSplit(*output, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() == 2) facts.packages[words[0]] = words[1];
  }
}

}  // namespace ddprun

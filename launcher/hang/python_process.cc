// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/python_process.h"

#include <gelf.h>
#include <libelf.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/hang/python_frames.h"
#include "launcher/hang/python_layout.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

struct Interpreter {
  std::uint64_t runtime = 0;           // address of _PyRuntime
  std::uint64_t version = 0;           // address of Py_Version, which 3.11 and later have
  std::optional<int> minor_of_a_path;  // python3.N in the name of a file that it has mapped
};

bool ReadFrom(pid_t pid, std::uint64_t address, void* to, std::size_t size) {
  iovec local = {to, size};
  iovec remote = {reinterpret_cast<void*>(address), size};  // NOLINT(performance-no-int-to-ptr)
  const ssize_t count = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  return count >= 0 && static_cast<std::size_t>(count) == size;
}

// Until both are found: the dynamic symbols come first, and a stripped file has no others.
void FindSymbols(Elf* elf, std::uint64_t bias, Interpreter& found) {
  Elf_Scn* section = nullptr;
  while ((section = elf_nextscn(elf, section)) != nullptr) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_entsize == 0) continue;
    if (header.sh_type != SHT_DYNSYM && header.sh_type != SHT_SYMTAB) continue;
    Elf_Data* const data = elf_getdata(section, nullptr);
    const std::uint64_t count = data == nullptr ? 0 : data->d_size / header.sh_entsize;
    for (std::uint64_t i = 0; i < count && (found.runtime == 0 || found.version == 0); ++i) {
      GElf_Sym symbol;
      if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
      if (symbol.st_shndx == SHN_UNDEF || GELF_ST_TYPE(symbol.st_info) != STT_OBJECT) continue;
      const char* const name = elf_strptr(elf, header.sh_link, symbol.st_name);
      if (name == nullptr) continue;
      if (std::strcmp(name, "_PyRuntime") == 0) found.runtime = symbol.st_value + bias;
      if (std::strcmp(name, "Py_Version") == 0) found.version = symbol.st_value + bias;
    }
  }
}

// 9 of ".../libpython3.9.so.1.0" and ".../lib/python3.9/lib-dynload/math.so".
std::optional<int> MinorOfPath(absl::string_view path) {
  constexpr absl::string_view kName = "python3.";
  const std::size_t at = path.rfind(kName);
  if (at == absl::string_view::npos) return std::nullopt;
  path.remove_prefix(at + kName.size());
  int minor = 0;
  const std::size_t end = std::min(path.find_first_not_of("0123456789"), path.size());
  return absl::SimpleAtoi(path.substr(0, end), &minor) ? std::optional(minor) : std::nullopt;
}

struct Search {
  std::string program;  // what /proc/PID/exe is
  Interpreter found;
};

// Python may be in a program of any name; its library has its own.
int LookInto(Dwfl_Module* module, void** /*user*/, const char* name, Dwarf_Addr /*start*/,
             void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (name == nullptr) return DWARF_CB_OK;
  if (!search.found.minor_of_a_path) search.found.minor_of_a_path = MinorOfPath(name);
  const std::string base = fs::path(name).filename().string();
  const bool may_be = name == search.program || absl::StartsWith(base, "libpython3") ||
                      absl::StartsWith(base, "python3");
  if (!may_be || search.found.runtime != 0) return DWARF_CB_OK;
  GElf_Addr bias = 0;
  if (Elf* const elf = dwfl_module_getelf(module, &bias)) FindSymbols(elf, bias, search.found);
  // Its own name tells more than that of a module which happens to come first.
  const std::optional<int> minor = MinorOfPath(name);
  if (search.found.runtime != 0 && minor.has_value()) search.found.minor_of_a_path = minor;
  return DWARF_CB_OK;
}

std::optional<PythonLayout> FindLayout(ReadMemory read, const Interpreter& python,
                                       std::optional<int>& minor) {
  std::string start(kPythonDebugOffsetsBytes, '\0');
  if (!read(python.runtime, start.data(), start.size())) start.clear();
  minor = DescribedPythonMinor(start);
  if (minor.has_value()) return DescribedPythonLayout(start);
  // PY_VERSION_HEX: 0x030b07f0 is 3.11.7.
  std::uint64_t version = 0;
  if (python.version != 0 && read(python.version, &version, sizeof version)) {
    if (version >> 24 == 3) minor = static_cast<int>(version >> 16 & 0xff);
  } else {
    minor = python.minor_of_a_path;
  }
  return minor.has_value() ? PythonLayoutOf(*minor) : std::nullopt;
}

bool IsThread(pid_t pid, std::int64_t tid) {
  std::error_code error;
  return tid > 0 && fs::exists(absl::StrCat("/proc/", pid, "/task/", tid), error);
}

// Before 3.11 Python does not know it, but what pthread_self() points to has it: `tid` of glibc's
// struct pthread (nptl/descr.h), here of 2.36. With another C library it is some other number,
// which is no thread of that process. 0: not known.
std::int64_t TidOf(ReadMemory read, std::uint64_t handle) {
#if defined(__x86_64__)
  constexpr std::uint64_t kTidOffset = 720;
#elif defined(__aarch64__)
  constexpr std::uint64_t kTidOffset = 208;
#else
  constexpr std::uint64_t kTidOffset = 0;
#endif
  std::int32_t tid = 0;
  if (kTidOffset == 0 || !read(handle + kTidOffset, &tid, sizeof tid)) return 0;
  return tid;
}

std::string NameOf(pid_t pid, std::int64_t tid) {
  const std::string path = absl::StrCat("/proc/", pid, "/task/", tid, "/comm");
  return std::string(absl::StripTrailingAsciiWhitespace(ReadSmallFile(path)));
}

// The thread that watches the collectives (launcher/collectives), which always waits.
bool IsOurs(const PythonThread& thread) {
  return thread.is_whole && !thread.frames.empty() &&
         absl::EndsWith(thread.frames.back().file, "/collective_watch/sitecustomize.py");
}

}  // namespace

std::vector<std::string> PythonStacks(Dwfl* dwfl, pid_t pid) {
  Search search;
  std::error_code error;
  search.program = fs::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error).string();
  dwfl_getmodules(dwfl, LookInto, &search, 0);
  if (search.found.runtime == 0) return {};
  const auto read = [pid](std::uint64_t address, void* to, std::size_t size) {
    return ReadFrom(pid, address, to, size);
  };
  char first = 0;
  if (!read(search.found.runtime, &first, 1)) {
    return {absl::StrCat("  Python frames cannot be read: ", std::strerror(errno))};
  }
  std::optional<int> minor;
  const std::optional<PythonLayout> layout = FindLayout(read, search.found, minor);
  const std::string python = minor.has_value() ? absl::StrCat("Python 3.", *minor) : "Python";
  if (!layout.has_value()) {
    return {absl::StrCat("  ", python, ": only native frames, since the Python frames of 3.",
                         kPythonMinorMin, " to 3.", kPythonMinorMax, " can be read")};
  }
  const PythonThreads found = ReadPythonThreads(read, search.found.runtime, *layout);
  std::vector<std::string> lines;
  for (const PythonThread& thread : found.threads) {
    if (IsOurs(thread)) continue;
    const std::int64_t tid = thread.tid != 0 ? thread.tid : TidOf(read, thread.handle);
    const bool is_known = IsThread(pid, tid);
    lines.push_back(absl::StrCat("  ", python, " thread ",
                                 is_known ? absl::StrCat(tid, " (", NameOf(pid, tid), ")") : "?",
                                 thread.holds_gil ? ", holds the GIL" : ""));
    for (std::size_t i = 0; i < thread.frames.size(); ++i) {
      lines.push_back(absl::StrCat("    #", i, " ", ToText(thread.frames[i])));
    }
    if (!thread.is_whole) lines.push_back("    the frames below could not be read");
  }
  if (found.more > 0) lines.push_back(absl::StrCat("  and ", found.more, " more Python threads"));
  if (lines.empty()) return {absl::StrCat("  ", python, " has no threads")};
  return lines;
}

}  // namespace ddprun

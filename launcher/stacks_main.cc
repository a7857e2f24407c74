// SPDX-License-Identifier: Apache-2.0
// ddprun-stacks PID FILE ...: the stacks of all threads of each process, to stdout and appended to
// FILE (unless that is empty). Each thread is stopped for as long as its frames are read, and goes
// on. ddprun calls it for workers that hang, and kills it when its time is over; so it begins with
// what is quick and certain, and what may take long comes last.
#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/hang/python_process.h"
#include "launcher/hang/stacks.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] =
    "Usage: ddprun-stacks PID FILE [PID FILE]...\n"
    "\n"
    "Prints the native and Python stacks of all threads of each process.\n"
    "ddprun runs it for workers that hang. Each thread is stopped while its frames are read.\n"
    "\n"
    "  PID   process to read; needs the right to trace it\n"
    "  FILE  also append the stacks to this file; '' for none\n";

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

std::string ProcPath(pid_t pid, pid_t tid, const char* name) {
  return absl::StrCat("/proc/", pid, "/task/", tid, "/", name);
}

char StateOf(pid_t pid, pid_t tid) {
  const std::string stat = ReadFile(ProcPath(pid, tid, "stat"));
  const std::size_t end = stat.rfind(')');
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

std::string WaitPoint(pid_t pid, pid_t tid) {
  const std::string name = ReadFile(ProcPath(pid, tid, "wchan"));
  return name.empty() || name == "0" ? "" : absl::StrCat(", in the kernel in ", name);
}

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    threads.push_back(static_cast<pid_t>(std::atoi(it->path().filename().c_str())));
  }
  // The first thread is the process's own, and the most useful one.
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

struct FrameWriter {
  Dwfl* dwfl;
  std::vector<std::string>* lines;
  std::size_t count = 0;
};

std::string FrameText(Dwfl* dwfl, Dwarf_Addr address, bool is_call) {
  const Dwarf_Addr at = is_call ? address - 1 : address;
  char hex[32];
  std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(address));
  Dwfl_Module* module = dwfl_addrmodule(dwfl, at);
  if (module == nullptr) return hex;
  std::string text;
  if (const char* name = dwfl_module_addrname(module, at)) text = Demangled(name);
  if (Dwfl_Line* line = dwfl_module_getsrc(module, at)) {
    int number = 0;
    if (const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr)) {
      text += absl::StrCat(text.empty() ? "" : " at ", file, ":", number);
    }
  }
  const char* file =
      dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  if (text.empty()) text = hex;
  if (file != nullptr) text += absl::StrCat(" (", fs::path(file).filename().string(), ")");
  return text;
}

int WriteFrame(Dwfl_Frame* frame, void* argument) {
  auto& writer = *static_cast<FrameWriter*>(argument);
  Dwarf_Addr address = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &address, &is_activation)) return DWARF_CB_ABORT;
  if (address == 0) return DWARF_CB_ABORT;
  writer.lines->push_back(
      absl::StrCat("    #", writer.count, " ", FrameText(writer.dwfl, address, !is_activation)));
  return ++writer.count < kStackFramesMax ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::string WhyNotTraced(int error) {
  std::string text = absl::StrCat("    native frames cannot be read: ", std::strerror(error));
  if (error == EPERM || error == EACCES) {
    const std::string scope = ReadFile("/proc/sys/kernel/yama/ptrace_scope");
    text += scope.empty() || scope == "0"
                ? "; the right to trace it is missing (CAP_SYS_PTRACE, --cap-add in a container)"
                : absl::StrCat("; kernel.yama.ptrace_scope is ", scope,
                               ", with 0 or 1 it can be traced");
  }
  return text;
}

// For a process that has been attached to.
void AddThreads(Dwfl* dwfl, pid_t pid, std::vector<std::string>& lines) {
  const std::vector<pid_t> threads = ThreadsOf(pid);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (i >= kStackThreadsMax) {
      lines.push_back(absl::StrCat("  and ", threads.size() - i, " more threads"));
      return;
    }
    const pid_t tid = threads[i];
    const char state = StateOf(pid, tid);
    lines.push_back(absl::StrCat("  thread ", tid, " (", ReadFile(ProcPath(pid, tid, "comm")),
                                 "), state ", std::string(1, state), WaitPoint(pid, tid)));
    // To stop it would be to wait for the kernel.
    if (state == 'D' || state == 'Z') continue;
    FrameWriter writer{dwfl, &lines};
    if (dwfl_getthread_frames(dwfl, tid, WriteFrame, &writer) < 0 && writer.count == 0) {
      const std::string why = dwfl_errmsg(-1);
      lines.push_back(why == std::strerror(EPERM) ? WhyNotTraced(EPERM) : "    " + why);
    }
  }
}

struct Process {
  pid_t pid = 0;
  std::string file;
  Dwfl* dwfl = nullptr;
  std::string why_not;  // dwfl cannot be used; a line
  std::string text;     // what has been printed
};

void Print(Process& process, const std::vector<std::string>& lines) {
  std::string text = absl::StrCat(kStacksProcessPrefix, process.pid, "\n");
  const std::size_t prefix = process.text.empty() ? 0 : text.size();
  for (const std::string& line : lines) text += line + "\n";
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  process.text.append(text, prefix);
}

// An errno, or below 0 an error of libdwfl.
std::string WhyNot(int error) {
  return error > 0 ? WhyNotTraced(error) : absl::StrCat("  ", dwfl_errmsg(-1));
}

void Open(Process& process) {
  static char* debug_path = nullptr;
  static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                           .find_debuginfo = dwfl_standard_find_debuginfo,
                                           .section_address = nullptr,
                                           .debuginfo_path = &debug_path};
  process.dwfl = dwfl_begin(&callbacks);
  const int error =
      process.dwfl == nullptr ? -1 : dwfl_linux_proc_report(process.dwfl, process.pid);
  if (error != 0) process.why_not = WhyNot(error);
  if (error == 0) dwfl_report_end(process.dwfl, nullptr, nullptr);
}

std::vector<std::string> NativeStacks(Process& process) {
  const pid_t pid = process.pid;
  if (process.why_not.empty()) {
    const int error = dwfl_linux_proc_attach(process.dwfl, pid, /*assume_ptrace_stopped=*/false);
    if (error != 0) process.why_not = WhyNot(error);
  }
  std::vector<std::string> lines;
  if (process.why_not.empty()) {
    AddThreads(process.dwfl, pid, lines);
    return lines;
  }
  lines.push_back(process.why_not);
  for (const pid_t tid : ThreadsOf(pid)) {
    lines.push_back(absl::StrCat("  thread ", tid, ", state ", std::string(1, StateOf(pid, tid)),
                                 WaitPoint(pid, tid)));
    if (lines.size() > kStackThreadsMax) break;
  }
  return lines;
}

// The name is ddprun's own: a link in its place is not followed. An earlier run with the same id
// and log folder may have left its stacks there, hence the time.
void AppendTo(const std::string& file, const std::string& text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  std::FILE* const stream = fdopen(open(file.c_str(), kFlags, 0644), "a");
  if (stream == nullptr) return;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> when{};
  std::strftime(when.data(), when.size(), "=== read at %Y-%m-%dT%H:%M:%SZ\n", &utc);
  std::fputs(when.data(), stream);
  std::fputs(text.c_str(), stream);
  std::fclose(stream);
}

int Main(const std::vector<std::string>& arguments) {
  // The agent is gone: no more threads are stopped.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // What is known here must do: symbols from a server would take minutes.
  unsetenv("DEBUGINFOD_URLS");
  if (arguments == std::vector<std::string>{"--help"}) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (arguments.size() < 2 || arguments.size() % 2 != 0) {
    std::fputs("ddprun-stacks needs a PID and a FILE for each process; see --help\n", stderr);
    return 2;
  }
  std::vector<Process> processes;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    processes.push_back({.pid = std::atoi(arguments[i].c_str()), .file = arguments[i + 1]});
  }
  // Python's frames, which people look for, take milliseconds; so those of all processes come
  // before the native ones of any.
  for (Process& process : processes) {
    Open(process);
    if (!process.why_not.empty()) continue;
    const std::vector<std::string> lines = PythonStacks(process.dwfl, process.pid);
    if (!lines.empty()) Print(process, lines);
  }
  for (Process& process : processes) {
    Print(process, NativeStacks(process));
    dwfl_end(process.dwfl);
  }
  // A folder on a disk that hangs comes after everything else.
  for (const Process& process : processes) {
    if (!process.file.empty()) AppendTo(process.file, process.text);
  }
  return 0;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main({argv + 1, argv + argc}); }

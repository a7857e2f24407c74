// SPDX-License-Identifier: Apache-2.0
// Reads what a dead worker has left on disks, its failure record and its core file, for the report
// of the failure (autopsy.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/background.h"
#include "launcher/workers/autopsy.h"

namespace ddprun {

struct CoreQuestion {
  std::string pattern;    // /proc/sys/kernel/core_pattern, without its line end
  bool uses_pid = false;  // /proc/sys/kernel/core_uses_pid
  std::string folder;     // the working folder of the process
  pid_t pid = 0;
  int signal = 0;
  // The start of the process: older files are not its core.
  std::chrono::system_clock::time_point started{};
};

// The path of the core by the pattern, with `*` for unknown parts. Empty: the kernel pipes the core
// to a program. Pure.
std::string CorePathPattern(const CoreQuestion& question);

// The path of the core, or the command that shows it if a program collects cores; empty: none.
std::string FindCore(const CoreQuestion& question);

// The same for a worker of this process.
std::string FindCoreOf(pid_t pid, int signal, std::chrono::system_clock::time_point started);

// Reads evidence and dumps on other threads.
class EvidenceReader {
 public:
  explicit EvidenceReader(const Background& background) : background_(background) {}

  void Begin(ReadEvidence question);
  // In place of dumps that are being read. Not valid: there is nothing to read.
  void Begin(std::future<DumpedPlaces> dumps) { dumps_ = std::move(dumps); }
  // What has been read since the last call.
  std::vector<AutopsyEvent> Take();

 private:
  const Background& background_;
  std::map<int, std::future<Evidence>> reading_;  // by ReadEvidence::end
  std::future<DumpedPlaces> dumps_;
};

}  // namespace ddprun

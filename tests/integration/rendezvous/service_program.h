// SPDX-License-Identifier: Apache-2.0
// ddprun-rendezvous in a process of its own.
#pragma once

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/paths.h"
#include "tests/testing/run_process.h"

namespace ddprun {

class ServiceProgram {
 public:
  ServiceProgram(std::vector<std::string> flags,
                 const std::map<std::string, std::string>& variables) {
    std::vector<std::string> argv = {BuildPath("bin/ddprun-rendezvous"), "--port", "0"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    process_ = std::make_unique<RunningProcess>(std::move(argv), variables);
    if (!process_->WaitForText("listening on 127.0.0.1:")) return;
    // The rest of the line comes with it: it is written at once.
    const std::string& out = process_->out();
    const std::string label = "listening on ";
    target_ = out.substr(label.size(), out.find('\n') - label.size());
    port_ = std::stoi(target_.substr(target_.rfind(':') + 1));
  }

  const std::string& target() const { return target_; }
  int port() const { return port_; }
  pid_t pid() const { return process_->pid(); }
  void Kill() {
    process_->Signal(SIGKILL);
    process_->Wait();
  }
  RunningProcess& process() { return *process_; }

  std::size_t ResidentBytes() const {
    std::ifstream file("/proc/" + std::to_string(pid()) + "/statm");
    std::size_t pages = 0;
    file >> pages >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  std::unique_ptr<RunningProcess> process_;
  std::string target_;
  int port_ = 0;
};

}  // namespace ddprun

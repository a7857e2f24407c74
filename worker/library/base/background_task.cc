// SPDX-License-Identifier: Apache-2.0
#include "worker/library/base/background_task.h"

#include <cstdio>
#include <stdexcept>
#include <thread>
#include <utility>

namespace ddprun {
namespace {

std::string Seconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

BackgroundTask::BackgroundTask(std::string name, std::chrono::milliseconds limit,
                               std::function<void()> work)
    : name_(std::move(name)), limit_(limit), deadline_(std::chrono::steady_clock::now() + limit) {
  std::packaged_task<void()> task(std::move(work));
  done_ = task.get_future().share();
  // Not joined: what hangs in a library would hold up the end of a rank that gives up, too.
  std::thread(std::move(task)).detach();
}

void BackgroundTask::Wait(const std::function<void()>& check) {
  const std::shared_future<void> done = done_;
  while (done.wait_for(kCheckInterval) != std::future_status::ready) {
    check();
    if (std::chrono::steady_clock::now() >= deadline_)
      throw std::runtime_error(name_ + " was not ready within " + Seconds(limit_) +
                               "; see what the other ranks say, or raise the timeout");
  }
  done.get();
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/process/thread_check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/process/resource_limit.h"

namespace ddprun {
namespace {

const char* program_name = "ddprun";

// A container's filter answers clone3 with EPERM, and glibc 2.34 or newer starts threads without
// that call only for ENOSYS.
constexpr char kForbidden[] =
    "cannot start a thread: this container's filter (seccomp) forbids the system call clone3; "
    "update "
    "the container runtime (Docker 20.10.10 or newer), or run the container with --security-opt "
    "seccomp=unconfined";

bool IsForbidden(const std::system_error& error) {
  return error.code() == std::errc::operation_not_permitted;
}

struct Started {
  int count = 0;
  bool forbidden = false;
};

Started StartThreads(int count) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  const SignalsBlocked blocked;
  bool forbidden = false;
  try {
    while (static_cast<int>(threads.size()) < count)
      threads.emplace_back([ended] { ended.wait(); });
  } catch (const std::system_error& error) {
    forbidden = IsForbidden(error);
  }
  end.set_value();
  for (std::thread& thread : threads) thread.join();
  return {static_cast<int>(threads.size()), forbidden};
}

[[noreturn]] void Terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::system_error& error) {
    if (IsForbidden(error)) {
      std::fprintf(stderr, "%s: %s\n", program_name, kForbidden);
      _exit(1);
    }
    if (error.code() == std::errc::resource_unavailable_try_again) {
      std::fprintf(stderr, "%s: no thread can be started: %s\n", program_name,
                   ThreadsRemedy().c_str());
      _exit(1);
    }
    std::fprintf(stderr, "%s: %s\n", program_name, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program_name, error.what());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

// Which of them it met the kernel does not say.
std::string ThreadsRemedy() {
  std::string limits;
  // The kernel does not limit root.
  if (const auto processes = ResourceLimit(RLIMIT_NPROC); processes && geteuid() != 0)
    absl::StrAppend(&limits, "`ulimit -u` (", *processes, "), ");
  if (const auto memory = ResourceLimit(RLIMIT_AS))
    absl::StrAppend(&limits, "`ulimit -v` (", *memory / 1024, "), ");
  return absl::StrCat("raise ", limits, limits.empty() ? "" : "or ",
                      "the limit of processes of its container or cgroup (pids.max)");
}

absl::Status CheckThreads(int count) {
  const auto [started, forbidden] = StartThreads(count);
  if (started >= count) return absl::OkStatus();
  if (forbidden) return absl::ResourceExhaustedError(kForbidden);
  return absl::ResourceExhaustedError(
      absl::StrCat("only ", started, " of the ", count,
                   " threads and processes that it needs can be started; ", ThreadsRemedy()));
}

void ExplainThreadFailures(const char* program) {
  program_name = program;
  std::set_terminate(Terminate);
}

}  // namespace ddprun

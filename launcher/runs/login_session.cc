// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/login_session.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

// What busctl of systemd prints. Absent: it is not there, has failed, or has not ended in time.
std::optional<std::string> AskBus(std::vector<std::string> words) {
  words.insert(words.begin(), "busctl");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return std::nullopt;
  const OwnedFd ours(fds[0]);
  OwnedFd theirs(fds[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, "busctl", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  theirs.Reset();
  if (error != 0) return std::nullopt;
  const TimePoint deadline = std::chrono::steady_clock::now() + kLoginSessionTimeout;
  std::string text;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd fd{ours.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&fd, 1, static_cast<int>(left.count())) == 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      return std::nullopt;
    }
    char bytes[512];
    const ssize_t count = read(ours.get(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(bytes, static_cast<std::size_t>(count));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status == 0 ? std::optional(text) : std::nullopt;
}

std::string UserName() {
  const passwd* user = getpwuid(geteuid());
  return user == nullptr ? "" : user->pw_name;
}

}  // namespace

std::string OutliveLogin(const std::string& run_name, const GetVariable& get_variable) {
  const std::string runtime = get_variable("XDG_RUNTIME_DIR").value_or("");
  std::error_code error;
  const std::string user = UserName();
  const bool has_manager =
      !runtime.empty() && std::filesystem::exists(runtime + "/systemd/private", error);
  const bool lingers =
      !user.empty() && std::filesystem::exists("/var/lib/systemd/linger/" + user, error);
  if (has_manager && lingers) {
    // As `systemd-run --user --scope` asks for it, for a process that runs already.
    const auto made = AskBus(
        {"--user", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
         "org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))",
         absl::StrCat("ddprun-", run_name, ".scope"), "fail", "2", "Description", "s",
         absl::StrCat("ddprun run ", run_name), "PIDs", "au", "1", absl::StrCat(getpid()), "0"});
    if (made.has_value()) return "";
  }
  const bool in_session = get_variable("XDG_SESSION_ID").has_value();
  if (!in_session) return "";
  const auto kills = AskBus({"get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
                             "org.freedesktop.login1.Manager", "KillUserProcesses"});
  if (!kills.has_value() || !absl::StrContains(*kills, "true")) return "";
  return absl::StrCat(
      "this machine ends all processes of a user who logs out (KillUserProcesses=yes), this run "
      "too; "
      "to keep it: loginctl enable-linger ",
      user, ", then start it again");
}

}  // namespace ddprun

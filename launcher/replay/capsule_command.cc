// SPDX-License-Identifier: Apache-2.0
// ddpctl capsule.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/base/temp_dir.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/replay/capsule.h"
#include "launcher/runs/event_record.h"
#include "launcher/runs/output_record.h"
#include "launcher/runs/run_folder.h"
#include "proto/output_file.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/own_program.h"

extern char** environ;

namespace ddprun {
namespace {

constexpr const char* kHidden = "***";

bool NamesSecret(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* part : {"token", "secret", "password", "passwd", "apikey", "api_key", "api-key",
                           "credential", "authorization"}) {
    if (absl::StrContains(lower, part)) return true;
  }
  return false;
}

// "https://hooks.example.com/services/T0/B0/XYZ?key=1" as "https://hooks.example.com/***".
std::string WithoutRestOfUrls(std::string word) {
  for (std::size_t at = 0; (at = word.find("://", at)) != std::string::npos;) {
    at += 3;
    const std::size_t space = word.find_first_of(" \t\"'", at);
    const std::size_t end = std::min(space, word.size());
    const std::size_t user = word.rfind('@', end);
    if (user != std::string::npos && user >= at) word.erase(at, user + 1 - at);
    const std::size_t rest = word.find_first_of("/?#", at);
    const std::size_t now_end = std::min(word.find_first_of(" \t\"'", at), word.size());
    if (rest < now_end && rest + 1 < now_end) word.replace(rest + 1, now_end - rest - 1, kHidden);
  }
  return word;
}

// Waits for its end. `output`: a file for its stdout; empty: this process's. UNAVAILABLE: it cannot
// be started, or its exit code is not 0.
absl::Status RunProgram(std::vector<std::string> arguments, const std::string& output = "") {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy = [&actions] { posix_spawn_file_actions_destroy(&actions); };
  if (!output.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot start ", arguments[0], ": ", ErrnoText(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(arguments[0], WIFEXITED(status) ? " exited with code " : " was ended by signal ",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
}

// The last part of both streams, as the terminal has shown it.
std::string EndOfOutput(const std::string& folder) {
  std::string text;
  ReadLines(folder, [&](OutputStream, const std::string& line) {
    absl::StrAppend(&text, line, "\n");
    if (text.size() > 2 * kCapsuleOutputBytesMax)
      text.erase(0, text.size() - kCapsuleOutputBytesMax);
  });
  return text.substr(text.size() - std::min(text.size(), kCapsuleOutputBytesMax));
}

absl::Status Fill(const KnownRun& run, const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::create_directory(to, error);
  RunRecord record = run.record;
  record.command = WithoutSecrets(record.command);
  record.security = {};
  absl::Status status = WriteWholeFile(to + "/run.json", ToJson(record), 0600);
  status.Update(WriteWholeFile(to + "/output.txt", EndOfOutput(from), 0600));
  for (const char* name : {"events", "samples", "steps"}) {
    for (const char* end : {"-1.jsonl", ".jsonl"}) {
      const std::string file = absl::StrCat("/", name, end);
      const std::string text = ReadSmallFile(from + file, kRunEventsBytesMax);
      if (!text.empty()) status.Update(WriteWholeFile(to + file, text, 0600));
    }
  }
  const std::string verdict = ReadVerdict(from);
  if (!verdict.empty()) status.Update(WriteWholeFile(to + "/verdict.json", verdict, 0600));
  // Where it finds something wrong its exit code says so, and its facts are those that matter.
  RunProgram({OwnProgram().parent_path() / "ddprun", "doctor", "--json"}, to + "/doctor.json")
      .IgnoreError();
  return status;
}

}  // namespace

std::vector<std::string> WithoutSecrets(const std::vector<std::string>& command) {
  std::vector<std::string> clean;
  bool hide = false;  // this word is the value of the one before
  for (const std::string& word : command) {
    const std::size_t equals = word.find('=');
    const bool is_flag = absl::StartsWith(word, "-");
    if (hide && !is_flag) {
      clean.emplace_back(kHidden);
    } else if (equals != std::string::npos && NamesSecret(word.substr(0, equals))) {
      clean.push_back(word.substr(0, equals + 1) + kHidden);
    } else {
      clean.push_back(WithoutRestOfUrls(word));
    }
    hide = is_flag && equals == std::string::npos && NamesSecret(word);
  }
  return clean;
}

absl::StatusOr<std::string> Unpack(const std::string& file, const std::string& into) {
  if (absl::Status status = RunProgram({"tar", "-x", "-o", "-f", file, "-C", into}); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " is no capsule that tar can unpack here: ", status.message()));
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(into, error)) {
    if (std::filesystem::exists(entry.path() / "run.json", error)) return entry.path().string();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file, " has no run in it; ddpctl capsule makes such files"));
}

int MakeCapsule(const CtlOptions& options) {
  const absl::StatusOr<std::string> runs = RunsFolder(ReadVariable);
  if (!runs.ok()) return CtlFailed(runs.status());
  const absl::StatusOr<KnownRun> run = FindRun(*runs, options.run_id, RunChoice::kAny);
  if (!run.ok()) return CtlFailed(run.status());
  const absl::StatusOr<std::string> folder = MakeTempDir();
  if (!folder.ok()) return CtlFailed(folder.status());
  const absl::Cleanup remove = [&folder] { RemoveTempDir(*folder); };
  const std::string& name = run->record.name;
  const std::string file = options.save.empty() ? name + ".tar.gz" : options.save;
  absl::Status status = Fill(*run, FolderOf(*runs, name), *folder + "/" + name);
  if (status.ok()) status = RunProgram({"tar", "-c", "-a", "-f", file, "-C", *folder, name});
  if (!status.ok()) {
    return CtlFailed(absl::UnavailableError(
        absl::StrCat("cannot write ", file, ": ", status.message(), "; -o names another file")));
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  return Show(absl::StrCat("wrote ", file, ", ", (error ? 0 : bytes + 1023) / 1024,
                           " KB; look through it before you send it: the output of the workers is "
                           "in it\n"));
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/small_file.h"

namespace ddprun {
namespace {

enum class FileState { kMissing, kFolder, kNotExecutable, kExecutable };

FileState StateOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return FileState::kMissing;
  if (S_ISDIR(info.st_mode)) return FileState::kFolder;
  return access(path.c_str(), X_OK) == 0 ? FileState::kExecutable : FileState::kNotExecutable;
}

// What --run-path does under torchrun: the script is __main__, and sys.path has not its folder.
constexpr char kRunPath[] =
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";

bool IsPython(const std::string& name) {
  for (const char* ending : {".py", ".pyc", ".pyz"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return absl::StrContains(name, '/') && StateOf(name) == FileState::kFolder &&
         StateOf(absl::StrCat(name, "/__main__.py")) != FileState::kMissing;
}

absl::StatusOr<std::string> CheckPath(const std::string& path) {
  switch (StateOf(path)) {
    case FileState::kMissing:
      return absl::NotFoundError(absl::StrCat("there is no program ", path, "; check the path"));
    case FileState::kFolder:
      return absl::PermissionDeniedError(
          absl::StrCat(path, " is a folder, not a program; name a file in it"));
    case FileState::kNotExecutable:
      return absl::PermissionDeniedError(
          absl::StrCat(path, " is not executable; `chmod +x ", path, "` makes it so"));
    case FileState::kExecutable:
      return path;
  }
  return absl::InternalError("unknown state of a file");
}

constexpr std::size_t kScriptLineBytesMax = 256;

// The text after "#!" in the first line, as far as the kernel reads it; empty: none.
std::string FirstLineOfScript(const std::string& path) {
  const std::string bytes = ReadSmallFile(path, kScriptLineBytesMax);
  absl::string_view text = bytes;
  if (!absl::ConsumePrefix(&text, "#!")) return "";
  return std::string(text.substr(0, text.find('\n')));
}

// If the interpreter of a script is missing, the kernel reports "No such file", as if the script
// were missing.
absl::Status CheckInterpreter(const std::string& path) {
  const std::string line = FirstLineOfScript(path);
  const bool crlf = absl::EndsWith(line, "\r");
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripSuffix(line, "\r"), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  const std::string interpreter(words.front());
  const bool is_env = absl::EndsWith(interpreter, "/env");
  if (crlf && (is_env || words.size() == 1)) {
    return absl::NotFoundError(absl::StrCat(
        path, " has Windows line ends, so its interpreter ", is_env ? words.back() : words.front(),
        " is not found; `sed -i 's/\\r$//' ", path, "` fixes it"));
  }
  if (StateOf(interpreter) != FileState::kMissing) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path, " names the interpreter ", interpreter,
                                          " in its first line, and there is no such file; correct "
                                          "that line"));
}

std::vector<std::string> PathFolders(const GetVariable& get_variable) {
  std::vector<std::string> folders;
  for (absl::string_view folder :
       absl::StrSplit(get_variable("PATH").value_or("/usr/bin:/bin"), ':')) {
    folders.emplace_back(folder.empty() ? "." : folder);
  }
  return folders;
}

// NOT_FOUND with an empty message: it is in none of them.
absl::StatusOr<std::string> FindIn(const std::vector<std::string>& folders,
                                   const std::string& name) {
  std::string unusable;
  for (const std::string& folder : folders) {
    const std::string path = absl::StrCat(folder, "/", name);
    const FileState state = StateOf(path);
    if (state == FileState::kExecutable) return path;
    if (state == FileState::kNotExecutable && unusable.empty()) unusable = path;
  }
  return unusable.empty() ? absl::NotFoundError("") : CheckPath(unusable);
}

absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& own_folder,
                                        const GetVariable& get_variable) {
  if (absl::StrContains(name, '/')) return CheckPath(name);
  std::vector<std::string> folders = PathFolders(get_variable);
  folders.insert(folders.begin(), own_folder);
  absl::StatusOr<std::string> path = FindIn(folders, name);
  if (!absl::IsNotFound(path.status())) return path;
  const bool here = StateOf(name) == FileState::kExecutable;
  return absl::NotFoundError(absl::StrCat(
      "there is no program '", name, "' beside ddprun (", own_folder, ") nor in PATH; ",
      here ? absl::StrCat("did you mean ./", name, "?") : "check its name"));
}

// That of the environment in which ddprun is installed, whether or not it is active: cron, systemd
// and a container's CMD activate none. Empty: it is in none.
std::string PythonOfOwnEnvironment(const std::string& own_folder) {
  const std::string python = absl::StrCat(own_folder, "/python3");
  // Signs of venv and virtualenv, and of conda.
  for (const char* sign : {"/../pyvenv.cfg", "/../conda-meta"}) {
    if (StateOf(own_folder + sign) == FileState::kMissing) continue;
    if (StateOf(python) == FileState::kExecutable) return python;
  }
  return "";
}

absl::StatusOr<std::string> FindPython(const std::string& own_folder,
                                       const GetVariable& get_variable) {
  const std::string own = PythonOfOwnEnvironment(own_folder);
  const std::string name =
      get_variable("PYTHON_EXEC").value_or(own.empty() ? std::string("python3") : own);
  absl::StatusOr<std::string> path =
      absl::StrContains(name, '/') ? CheckPath(name) : FindIn(PathFolders(get_variable), name);
  if (path.ok()) return path;
  return absl::Status(path.status().code(), absl::StrCat("cannot find the Python '", name,
                                                         "' to run the program; set PYTHON_EXEC"));
}

}  // namespace

std::vector<std::string> ArgumentsOf(const Program& program, int local_rank) {
  std::vector<std::string> argv = program.argv;
  for (std::size_t i = 1; i < argv.size(); ++i) {
    argv[i] = absl::StrReplaceAll(argv[i], {{"${local_rank}", absl::StrCat(local_rank)}});
  }
  return argv;
}

std::string MissingRank(const Options& options, int world_size) {
  const bool has_stdin = options.worker_stdin.to == WorkerStdin::To::kRank;
  const int wrapped = HighestWrapped(options.wraps);
  const bool of_wrap = wrapped >= world_size;
  if (!of_wrap && (!has_stdin || options.worker_stdin.rank < world_size)) return "";
  return absl::StrCat(
      of_wrap ? "--wrap" : "--stdin", " names rank ", of_wrap ? wrapped : options.worker_stdin.rank,
      ", and this run has ",
      world_size == 1 ? "rank 0 alone" : absl::StrCat("ranks 0 to ", world_size - 1),
      "; name one of them");
}

absl::Status ResolveWraps(Options& options, int workers, const GetVariable& get_variable) {
  if (options.nodes == 1) {
    const std::string sentence = MissingRank(options, workers);
    if (!sentence.empty()) return absl::InvalidArgumentError(sentence);
  }
  for (WorkerWrap& wrap : options.wraps) {
    std::string& name = wrap.command.front();
    const absl::StatusOr<std::string> path =
        absl::StrContains(name, '/') ? CheckPath(name) : FindIn(PathFolders(get_variable), name);
    if (path.ok()) {
      name = *path;
    } else if (options.nodes == 1) {
      return absl::Status(path.status().code(),
                          absl::StrCat("--wrap: ", path.status().message().empty()
                                                       ? absl::StrCat("there is no program '", name,
                                                                      "' in PATH; install it, or "
                                                                      "give its path")
                                                       : std::string(path.status().message())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Program> ResolveProgram(const ProgramSection& section, const std::string& own_folder,
                                       const GetVariable& get_variable) {
  const std::string& name = section.program.front();
  const bool script = section.run_path || (!section.module && !section.no_python && IsPython(name));
  Program program;
  if (!section.module && !script) {
    absl::StatusOr<std::string> path = FindProgram(name, own_folder, get_variable);
    if (!path.ok()) return path.status();
    if (absl::Status status = CheckInterpreter(*path); !status.ok()) return status;
    program.path = *path;
    program.argv = section.program;
    return program;
  }
  if (script) {
    const FileState state = StateOf(name);
    if (state == FileState::kMissing) {
      return absl::NotFoundError(
          absl::StrCat("there is no Python script ", name, "; check the path"));
    }
    if (state == FileState::kFolder ? !IsPython(name) : access(name.c_str(), R_OK) != 0) {
      return absl::PermissionDeniedError(
          absl::StrCat("the Python script ", name, " cannot be read"));
    }
  }
  absl::StatusOr<std::string> python = FindPython(own_folder, get_variable);
  if (!python.ok()) return python.status();
  program.is_python = true;
  program.path = *python;
  program.argv = {*python, "-u"};
  if (section.run_path) {
    program.argv.insert(program.argv.end(), {"-c", kRunPath});
  } else if (section.module) {
    program.argv.push_back("-m");
  }
  program.argv.insert(program.argv.end(), section.program.begin(), section.program.end());
  return program;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Flags as users write them: `--flag VALUE`, `--flag=VALUE`, `_` for `-`, and PET_<NAME> variables
// as their defaults. Values are texts here and are checked by Reader, so that each error is a
// sentence of this program and names the source of the value.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

struct Flag {
  const char* name;   // "--nproc-per-node"
  char letter;        // of a short form, or 0
  const char* value;  // for --help; nullptr: a switch
  const char* help;
  bool repeats = false;  // may be repeated: the texts are joined by kRepeatSeparator
  // What users of other launchers write for it, "-ppn": whole words, which abbreviate nothing.
  std::vector<const char*> aliases = {};
};

inline constexpr char kRepeatSeparator = '\n';

// The flags of ddprun and ddpctl for the secret or certificate of a run.
extern const std::vector<Flag> kSecurityFlags;

struct Value {
  std::string text;
  std::string source;  // "--nnodes" or "PET_NNODES"
};
using Values = std::map<std::string, Value>;  // by the flag's name

struct ParsedFlags {
  Values values;
  std::vector<std::string> rest;  // from the first argument that is no flag
  bool help = false;
  bool version = false;
};

// The values on the command line. INVALID_ARGUMENT: invalid flags.
absl::StatusOr<ParsedFlags> ParseFlags(absl::Span<const Flag> flags,
                                       const std::vector<std::string>& arguments);

// PET_<NAME> variables for the flags that have no value yet.
void AddVariables(absl::Span<const Flag> flags, const GetVariable& get_variable, Values& values);

// One line per flag, as --help shows them.
std::string FlagsHelp(absl::Span<const Flag> flags);

struct Endpoint {
  std::string host;
  int port = 0;
  bool operator==(const Endpoint&) const = default;
};

// --help, --version and the like: text for stdout, exit code 0.
struct ShowText {
  std::string text;
};

// Checks texts and turns them into values; keeps the first error.
class Reader {
 public:
  explicit Reader(const Values& values) : values_(values) {}

  const Value* Find(const char* flag) const;

  bool Switch(const char* flag);
  std::optional<int> Integer(const char* flag, int min, int max);
  std::string Text(const char* flag, const char* needed, const std::string& otherwise);
  // A number of seconds, or one with a unit: 500ms, 5s, 2m, 1h30m.
  std::optional<std::chrono::milliseconds> Seconds(const char* flag, double max);
  std::chrono::milliseconds Seconds(const Value& value, double max);

  // The value of one of the names in `choices`; `otherwise` if the flag is not given.
  template <typename T>
  T Choice(const char* flag, const std::vector<std::pair<std::string, T>>& choices, T otherwise) {
    const Value* value = Find(flag);
    if (value == nullptr) return otherwise;
    std::vector<std::string> names;
    for (const auto& [name, choice] : choices) {
      if (name == value->text) return choice;
      names.push_back(name);
    }
    FailChoice(*value, names);
    return otherwise;
  }

  // "host", "host:port", "[v6]", "[v6]:port", or a bare IPv6 address. Port 0 is any free one.
  std::optional<ddprun::Endpoint> Endpoint(const char* flag, int port_default);
  // Of kSecurityFlags.
  SecurityOptions Security();

  void Fail(const Value& value, const std::string& needed);
  void FailWith(const std::string& sentence);
  const absl::Status& status() const { return status_; }

 private:
  void FailChoice(const Value& value, const std::vector<std::string>& names);

  const Values& values_;
  absl::Status status_;
};

}  // namespace ddprun

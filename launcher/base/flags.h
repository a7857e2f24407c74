// SPDX-License-Identifier: Apache-2.0
// Flags as users write them: `--flag VALUE`, `--flag=VALUE`, `_` for `-`, and PET_<NAME> variables
// as their defaults. A flag is one row: its name, its help, its bounds and the member that it sets;
// the default is the member's own. Every error is a sentence that names the source of the value.
#pragma once

#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// The name of a flag that exists. Code makes it as a literal ("--nnodes"_flag, run_flags.h), which
// does not compile where no row has the name.
struct FlagName {
  explicit constexpr FlagName(const char* name) : text(name) {}
  std::string With(const absl::AlphaNum& value) const { return absl::StrCat(text, "=", value); }
  const char* text;
};

struct FlagTraits {
  char letter = 0;                // of a short form, or 0
  std::int64_t min = 0;           // of a number; of an enum, the value of the first choice
  std::int64_t max = 0;           // of a number, or of SECONDS, which are above 0
  bool or_zero = false;           // SECONDS may also be 0
  const char* choices = nullptr;  // "grow|restart", as in the enum; absent: the words of `value`
  bool repeats = false;           // may be repeated: the texts are joined by kRepeatSeparator
  // The names that users of other launchers write, "-ppn": whole words, which abbreviate nothing.
  absl::Span<const char* const> aliases = {};
};

constexpr FlagTraits UpTo(std::int64_t max) { return {.max = max}; }
constexpr FlagTraits ZeroOrUpTo(std::int64_t max) { return {.max = max, .or_zero = true}; }
constexpr FlagTraits Between(std::int64_t min, std::int64_t max) {
  return {.min = min, .max = max};
}
constexpr FlagTraits Letter(char letter) { return {.letter = letter}; }
template <typename Enum = int>
constexpr FlagTraits Choices(const char* choices, Enum first = {}) {
  return {.min = static_cast<std::int64_t>(first), .choices = choices};
}

struct Flag : FlagTraits {
  std::string Help() const;  // the text with the default

  const char* name = nullptr;   // "--nproc-per-node"
  const char* value = nullptr;  // for --help; absent: a switch
  const char* help = nullptr;   // {} is the default
  std::string (*standard)(const Flag&) = nullptr;
};

class Reader;

struct Value {
  std::string text;
  std::string source;  // "--nnodes" or "PET_NNODES"
};
using Values = std::map<std::string, Value>;  // by the flag's name

// What a flag does to a T; `read` is absent where other code looks for the flag by its name.
template <typename T>
struct FlagAction {
  constexpr FlagAction() = default;
  constexpr FlagAction(void (*reads)(Reader&, const Flag&, const Value&, T&)) : read(reads) {}

  void (*read)(Reader&, const Flag&, const Value&, T&) = nullptr;
  std::string (*standard)(const Flag&) = nullptr;
};

// A row of a table of flags that set members of a T.
template <typename T>
struct FlagOf : Flag {
  constexpr FlagOf(const char* name_, const char* value_, const char* help_, FlagAction<T> action,
                   FlagTraits traits = {})
      : Flag{traits, name_, value_, help_, action.standard}, read(action.read) {}

  void (*read)(Reader&, const Flag&, const Value&, T&);
};

inline constexpr char kRepeatSeparator = '\n';

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

// All rows of several tables.
template <typename... Tables>
std::vector<Flag> FlagsIn(const Tables&... tables) {
  std::vector<Flag> flags;
  (flags.insert(flags.end(), std::begin(tables), std::end(tables)), ...);
  return flags;
}

// One line per flag, as --help shows them.
std::string FlagsHelp(absl::Span<const Flag> flags);

// The lower-case words of "N|auto|gpu|cpu": auto, gpu, cpu. Empty: any value.
std::vector<std::string> ChoicesOf(const char* value);

struct Endpoint {
  std::string host;
  int port = 0;
  std::vector<Endpoint> others;  // of other services, where one of several leads
  bool operator==(const Endpoint&) const = default;
};
// "host", "host:port", "[v6]", "[v6]:port", or a bare IPv6 address. False: it is none of them.
bool ParseEndpoint(const std::string& text, int port_default, Endpoint& endpoint);
// "10.0.0.1:29400", with the others after a comma.
std::string EndpointText(const Endpoint& endpoint);

// --help, --version and the like: text for stdout, exit code 0.
struct ShowText {
  std::string text;
};

// The given values, and the first error in them.
class Reader {
 public:
  explicit Reader(const Values& values) : values_(values) {}

  const Value* Find(FlagName flag) const;

  template <typename Rows, typename T>
  void Read(const Rows& rows, T& to) {
    for (const FlagOf<T>& row : rows) {
      const Value* value = Find(FlagName(row.name));
      if (value != nullptr && row.read != nullptr) row.read(*this, row, *value, to);
    }
  }

  void Fail(const Value& value, const std::string& needed);
  void FailWith(const std::string& sentence);
  void Check(const absl::Status& status);
  const absl::Status& status() const { return status_; }

 private:
  const Values& values_;
  absl::Status status_;
};

// ---- Values by the type of their member. Files of options add functions for their own types.

void ReadInto(Reader& reader, const Flag& flag, const Value& value, bool& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, int& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::string& to);
// A number of seconds, or one with a unit: 500ms, 5s, 2m, 1h30m.
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::chrono::milliseconds& to);
// As ParseEndpoint() has it, several with commas. Port 0 is any free one.
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::optional<Endpoint>& to);
// The index of a choice, 0 with an error.
int ReadChoice(Reader& reader, const Flag& flag, const Value& value);

std::string DefaultText(const Flag& flag, int value);
std::string DefaultText(const Flag& flag, const std::string& value);
std::string DefaultText(const Flag& flag, std::chrono::milliseconds value);
std::string DefaultChoice(const Flag& flag, std::int64_t choice);

template <typename Enum>
requires std::is_enum_v<Enum>
void ReadInto(Reader& reader, const Flag& flag, const Value& value, Enum& to) {
  to = static_cast<Enum>(ReadChoice(reader, flag, value) + flag.min);
}

template <typename T>
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::optional<T>& to) {
  ReadInto(reader, flag, value, to.emplace());
}

template <typename Enum>
requires std::is_enum_v<Enum> std::string DefaultText(const Flag& flag, Enum value) {
  return DefaultChoice(flag, static_cast<std::int64_t>(value) - flag.min);
}

// Sets a member, or one of a member: Sets<&Options::hangs, &HangOptions::on_hang>.
template <auto... path>
struct SetsMember {
  template <typename T>
  constexpr operator FlagAction<T>() const {
    FlagAction<T> action([](Reader& reader, const Flag& flag, const Value& value, T& to) {
      ReadInto(reader, flag, value, (to.*....*path));
    });
    action.standard = [](const Flag& flag) -> std::string {
      if constexpr (requires { DefaultText(flag, (std::declval<const T&>().*....*path)); })
        return DefaultText(flag, (T().*....*path));
      return "";
    };
    return action;
  }
};
template <auto... path>
inline constexpr SetsMember<path...> Sets{};

// ---- The secret or certificate of a run, for programs that have them in a member `security`.

template <typename T>
inline constexpr FlagOf<T> kSecurityFlags[] = {
    {"--token-file", "FILE",
     "File with the run's secret (DDPRUN_TOKEN, systemd's credential ddprun-token, "
     "~/.config/ddprun/token). Workers can read your files.",
     Sets<&T::security, &SecurityOptions::token_file>},
    {"--tls-cert", "FILE",
     "Certificate of this node, used instead of the secret; requires --tls-key and --tls-ca.",
     Sets<&T::security, &SecurityOptions::tls_cert>},
    {"--tls-key", "FILE", "Private key of that certificate.",
     Sets<&T::security, &SecurityOptions::tls_key>},
    {"--tls-ca", "FILE", "Certificate authority that signed the certificates of the peers.",
     Sets<&T::security, &SecurityOptions::tls_ca>},
    {"--insecure", nullptr, "Use plain text without a secret; give it on all nodes.",
     Sets<&T::security, &SecurityOptions::insecure>},
};

}  // namespace ddprun

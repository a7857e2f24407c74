// SPDX-License-Identifier: Apache-2.0
// --rdzv-conf: torchrun's settings of a rendezvous backend, for ddprun's own service. Each key that
// torchrun knows is applied, accepted without effect, or rejected with a replacement. Unknown and
// repeated keys, which torchrun ignores, are rejected. Pure.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/base/flag_names.h"
#include "launcher/options/run_flags.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr int kAttemptsMax = 1'000'000;

// torchrun's defaults; their product is its 15 s.
struct KeepAlive {
  std::chrono::milliseconds interval{5000};
  int attempts = 3;
};

struct Conf {
  std::optional<std::chrono::milliseconds> join_timeout;
  std::optional<std::chrono::milliseconds> last_call;
  std::optional<KeepAlive> keep_alive;
  std::optional<bool> is_host;
};

void ReadInterval(Reader& reader, const Flag& key, const Value& value, Conf& conf) {
  if (!conf.keep_alive) conf.keep_alive.emplace();
  ReadInto(reader, key, value, conf.keep_alive->interval);
}

void ReadAttempts(Reader& reader, const Flag& key, const Value& value, Conf& conf) {
  if (!conf.keep_alive) conf.keep_alive.emplace();
  ReadInto(reader, key, value, conf.keep_alive->attempts);
}

// absl knows the booleans that torchrun accepts.
void ReadIsHost(Reader& reader, const Flag&, const Value& value, Conf& conf) {
  if (!absl::SimpleAtob(value.text, &conf.is_host.emplace())) reader.Fail(value, "true or false");
}

// In the order of their precedence: the later one counts.
constexpr FlagOf<Conf> kKeys[] = {
    {"join_timeout", "SECONDS", "", Sets<&Conf::join_timeout>, UpTo(kJoinSecondsMax)},
    {"timeout", "SECONDS", "", Sets<&Conf::join_timeout>, UpTo(kJoinSecondsMax)},
    {"last_call_timeout", "SECONDS", "", Sets<&Conf::last_call>, UpTo(InSeconds(kLastCallMax))},
    {"keep_alive_interval", "SECONDS", "", ReadInterval, UpTo(kJoinSecondsMax)},
    {"keep_alive_max_attempt", "N", "", ReadAttempts, Between(1, kAttemptsMax)},
    {"is_host", "BOOL", "", ReadIsHost},
};

struct UnreadKey {
  const char* name;
  bool refused;  // else without effect
  const char* why;
};

constexpr UnreadKey kUnreadKeys[] = {
    {"store_type", false, "the service is always reached over TCP"},
    {"close_timeout", false, "ddprun never waits for a run to be closed"},
    {"heartbeat_timeout", false, "--lease limits how long a node may be silent"},
    {"read_timeout", false, "--join-timeout limits the whole rendezvous"},
    {"cas_backoff_max_seconds", false, "nodes do not compete for one key"},
    {"protocol", false, "connections are TLS unless --insecure is given"},
    {"rank", false, "--node-rank sets it"},
    {"use_libuv", false, "the service has a server of its own"},
    {"etcd_prefix", true, "the service separates its runs by --rdzv-id"},
    {"ssl_cert", true, "give --tls-cert FILE"},
    {"cert", true, "give --tls-cert FILE"},
    {"ssl_cert_key", true, "give --tls-key FILE"},
    {"key", true, "give --tls-key FILE"},
    {"ca_cert", true, "give --tls-ca FILE"},
    {"cacert", true, "give --tls-ca FILE"},
};

// Keys have _, where NearestName() expects -.
std::string DidYouMeanKey(const std::string& name) {
  std::vector<std::string> names;
  for (const Flag& key : kKeys) names.push_back(WithDashes(key.name));
  for (const UnreadKey& key : kUnreadKeys) {
    if (!key.refused) names.push_back(WithDashes(key.name));
  }
  const std::string nearest = NearestName(name, names);
  if (nearest.empty()) return "";
  return absl::StrCat(" (did you mean ", absl::StrReplaceAll(nearest, {{"-", "_"}}), "?)");
}

// Adds a key that has an effect to `values`.
void TakeKey(Reader& reader, const std::string& name, const Value& value, Values& values,
             std::vector<std::string>& notes) {
  const auto is_name = [&](const auto& key) { return name == key.name; };
  const auto* key = std::find_if(std::begin(kUnreadKeys), std::end(kUnreadKeys), is_name);
  if (value.text.empty()) return reader.Fail(value, "a value; write KEY=VALUE,KEY=VALUE");
  if (key == std::end(kUnreadKeys)) {
    values[name] = value;
  } else if (name == "store_type" && absl::AsciiStrToLower(value.text) != "tcp") {
    reader.FailWith(absl::StrCat(value.source, " '", value.text,
                                 "' is not known: nodes meet at a service, not in a file; give "
                                 "--rdzv-endpoint HOST:PORT"));
  } else if (key->refused) {
    reader.FailWith(
        absl::StrCat(value.source, " is a setting of etcd, which ddprun does not use; ", key->why));
  } else {
    notes.push_back(absl::StrCat(value.source, " has no effect: ", key->why));
  }
}

bool IsKey(const std::string& name) {
  const auto is_name = [&](const auto& key) { return name == key.name; };
  return std::any_of(std::begin(kKeys), std::end(kKeys), is_name) ||
         std::any_of(std::begin(kUnreadKeys), std::end(kUnreadKeys), is_name);
}

// Those around all pairs, which no shell has taken away: of a list of arguments in a program.
absl::string_view WithoutQuotes(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '\'' || text.front() == '"');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

void ReadRdzvConf(Reader& reader, const Flag&, const Value& whole, Options& options) {
  const absl::string_view pairs = WithoutQuotes(whole.text);
  if (pairs.empty()) return;
  Values values;
  std::set<std::string> seen;
  for (const absl::string_view pair : absl::StrSplit(pairs, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    if (!seen.insert(name).second) {
      reader.FailWith(
          absl::StrCat(whole.source, " has the key '", name, "' twice; leave one of them out"));
    }
    if (!IsKey(name)) {
      reader.FailWith(
          absl::StrCat(whole.source, " has the unknown key '", name, "'", DidYouMeanKey(name),
                       "; most used are join_timeout, last_call_timeout, keep_alive_interval, "
                       "keep_alive_max_attempt and is_host"));
    }
    const std::string text(absl::StripAsciiWhitespace(parts.second));
    TakeKey(reader, name, {text, absl::StrCat(whole.source, " ", name)}, values, options.notes);
  }
  Reader keys(values);
  Conf conf;
  keys.Read(kKeys, conf);
  reader.Check(keys.status());
  options.join_timeout = conf.join_timeout.value_or(options.join_timeout);
  options.last_call = conf.last_call.value_or(options.last_call);
  if (conf.keep_alive) {
    options.lease = std::min<std::chrono::milliseconds>(
        conf.keep_alive->interval * conf.keep_alive->attempts, kLeaseMax);
  }
  options.is_host = conf.is_host;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/rdzv_conf.h"

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
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr double kSecondsMax = 30.0 * 24 * 3600;
constexpr double kLastCallSecondsMax = std::chrono::seconds(kLastCallMax).count();
constexpr int kAttemptsMax = 1'000'000;
// torchrun's defaults; their product is its 15 s.
constexpr std::chrono::milliseconds kIntervalDefault{5000};
constexpr int kAttemptsDefault = 3;

enum class Use { kRead, kNoEffect, kRefused };

struct Key {
  const char* name;
  Use use;
  const char* why;  // of kNoEffect and kRefused
};

const Key kKeys[] = {
    {"join_timeout", Use::kRead, ""},
    {"timeout", Use::kRead, ""},
    {"last_call_timeout", Use::kRead, ""},
    {"keep_alive_interval", Use::kRead, ""},
    {"keep_alive_max_attempt", Use::kRead, ""},
    {"is_host", Use::kRead, ""},
    {"store_type", Use::kNoEffect, "the service is always reached over TCP"},
    {"close_timeout", Use::kNoEffect, "ddprun never waits for a run to be closed"},
    {"heartbeat_timeout", Use::kNoEffect, "--lease limits how long a node may be silent"},
    {"read_timeout", Use::kNoEffect, "--join-timeout limits the whole rendezvous"},
    {"cas_backoff_max_seconds", Use::kNoEffect, "nodes do not compete for one key"},
    {"protocol", Use::kNoEffect, "connections are TLS unless --insecure is given"},
    {"rank", Use::kNoEffect, "--node-rank sets it"},
    {"use_libuv", Use::kNoEffect, "the service has a server of its own"},
    {"etcd_prefix", Use::kRefused, "the service separates its runs by --rdzv-id"},
    {"ssl_cert", Use::kRefused, "give --tls-cert FILE"},
    {"cert", Use::kRefused, "give --tls-cert FILE"},
    {"ssl_cert_key", Use::kRefused, "give --tls-key FILE"},
    {"key", Use::kRefused, "give --tls-key FILE"},
    {"ca_cert", Use::kRefused, "give --tls-ca FILE"},
    {"cacert", Use::kRefused, "give --tls-ca FILE"},
};

// Keys have _, where NearestName() expects -.
std::string DidYouMeanKey(const std::string& name) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (key.use != Use::kRefused) names.push_back(WithDashes(key.name));
  }
  const std::string nearest = NearestName(name, names);
  if (nearest.empty()) return "";
  return absl::StrCat(" (did you mean ", absl::StrReplaceAll(nearest, {{"-", "_"}}), "?)");
}

// Adds what has an effect to `values`.
void ReadKey(Reader& reader, const std::string& source, const std::string& name,
             const std::string& text, Values& values, RdzvConf& conf) {
  const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                 [&](const Key& one) { return name == one.name; });
  if (key == std::end(kKeys)) {
    return reader.FailWith(
        absl::StrCat(source, " has the unknown key '", name, "'", DidYouMeanKey(name),
                     "; most used are join_timeout, last_call_timeout, keep_alive_interval, "
                     "keep_alive_max_attempt and is_host"));
  }
  const Value value{text, absl::StrCat(source, " ", name)};
  if (text.empty()) return reader.Fail(value, "a value; write KEY=VALUE,KEY=VALUE");
  if (name == "store_type" && absl::AsciiStrToLower(text) != "tcp") {
    return reader.FailWith(
        absl::StrCat(value.source, " '", text,
                     "' is not known: nodes meet at a service, not in a file; give "
                     "--rdzv-endpoint HOST:PORT"));
  }
  switch (key->use) {
    case Use::kRead:
      values[name] = value;
      return;
    case Use::kNoEffect:
      conf.notes.push_back(absl::StrCat(value.source, " has no effect: ", key->why));
      return;
    case Use::kRefused:
      return reader.FailWith(absl::StrCat(
          value.source, " is a setting of etcd, which ddprun does not use; ", key->why));
  }
}

// Those around all pairs, which no shell has taken away: of a list of arguments in a program.
absl::string_view WithoutQuotes(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '\'' || text.front() == '"');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

RdzvConf ReadRdzvConf(Reader& reader) {
  const Value* whole = reader.Find("--rdzv-conf");
  if (whole == nullptr) return {};
  const absl::string_view pairs = WithoutQuotes(whole->text);
  if (pairs.empty()) return {};
  RdzvConf conf;
  Values values;
  std::set<std::string> seen;
  for (const absl::string_view pair : absl::StrSplit(pairs, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    if (!seen.insert(name).second) {
      reader.FailWith(
          absl::StrCat(whole->source, " has the key '", name, "' twice; leave one of them out"));
    }
    ReadKey(reader, whole->source, name, std::string(absl::StripAsciiWhitespace(parts.second)),
            values, conf);
  }
  Reader keys(values);
  const auto timeout = keys.Seconds("timeout", kSecondsMax);
  conf.join_timeout = timeout.has_value() ? timeout : keys.Seconds("join_timeout", kSecondsMax);
  conf.last_call = keys.Seconds("last_call_timeout", kLastCallSecondsMax);
  const auto interval = keys.Seconds("keep_alive_interval", kSecondsMax);
  const auto attempts = keys.Integer("keep_alive_max_attempt", 1, kAttemptsMax);
  if (interval.has_value() || attempts.has_value()) {
    conf.lease = std::min<std::chrono::milliseconds>(
        interval.value_or(kIntervalDefault) * attempts.value_or(kAttemptsDefault), kLeaseMax);
  }
  if (const Value* value = keys.Find("is_host")) {
    // absl knows the booleans that torchrun accepts.
    if (!absl::SimpleAtob(value->text, &conf.is_host.emplace())) keys.Fail(*value, "true or false");
  }
  if (!keys.status().ok()) reader.FailWith(std::string(keys.status().message()));
  return conf;
}

}  // namespace ddprun

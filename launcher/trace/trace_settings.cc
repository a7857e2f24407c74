// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/trace_settings.h"

#include <openssl/evp.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/version.h"

namespace ddprun {
namespace {

constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;

// All zeros mean: no id.
bool IsId(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         text.find_first_not_of('0') != std::string_view::npos;
}

std::string Unescape(absl::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() &&
                         absl::ascii_isxdigit(text[i + 1]) && absl::ascii_isxdigit(text[i + 2]);
    plain += escaped ? absl::HexStringToBytes(text.substr(i + 1, 2)) : std::string(1, text[i]);
    if (escaped) i += 2;
  }
  return plain;
}

// "key1=value1,key2=value%202". False: an entry has no key, or a byte that no header may have.
bool ReadPairs(const std::string& text, TextPairs& pairs) {
  bool all = true;
  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::size_t equals = entry.find('=');
    const absl::string_view key = absl::StripAsciiWhitespace(entry.substr(0, equals));
    const std::string value = equals == absl::string_view::npos
                                  ? ""
                                  : Unescape(absl::StripAsciiWhitespace(entry.substr(equals + 1)));
    const bool valid = !key.empty() && equals != absl::string_view::npos &&
                       std::all_of(key.begin(), key.end(), absl::ascii_isgraph) &&
                       std::none_of(value.begin(), value.end(), absl::ascii_iscntrl);
    if (valid) pairs.emplace_back(std::string(key), value);
    all = all && valid;
  }
  return all;
}

void Warn(std::string sentence, TraceSettings& settings) {
  if (settings.warning.empty()) settings.warning = std::move(sentence);
}

void ReadProtocol(const std::string& protocol, TraceSettings& settings) {
  if (protocol.empty() || protocol == "http/json") return;
  Warn(absl::StrCat("traces are sent as http/json, which OTEL_EXPORTER_OTLP_PROTOCOL=", protocol,
                    " does not name; a collector accepts it at the port of http/protobuf (4318)"),
       settings);
}

void ReadAttributes(const GetVariable& get_variable, const std::string& host,
                    TraceSettings& settings) {
  TextPairs& attributes = settings.attributes;
  attributes = {
      {"service.name", "ddprun"}, {"service.version", kSoftwareVersion}, {"host.name", host}};
  TextPairs own;
  if (!ReadPairs(get_variable("OTEL_RESOURCE_ATTRIBUTES").value_or(""), own))
    Warn("OTEL_RESOURCE_ATTRIBUTES has an entry that is no key=value; it is ignored", settings);
  if (const auto name = get_variable("OTEL_SERVICE_NAME"); !name.value_or("").empty())
    own.emplace_back("service.name", *name);
  for (auto& [key, value] : own) {
    std::erase_if(attributes, [&key = key](const auto& other) { return other.first == key; });
    attributes.emplace_back(key, value);
  }
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '-');
  // A later version may have more parts.
  if (parts.size() < 4 || parts[0].size() != 2 || parts[0] == "ff" || parts[3].size() != 2 ||
      (parts[0] == "00" && parts.size() > 4)) {
    return std::nullopt;
  }
  TraceContext context{std::string(parts[1]), std::string(parts[2])};
  if (!IsId(context.trace_id, kTraceDigits) || !IsId(context.span_id, kSpanDigits))
    return std::nullopt;
  if (!absl::ascii_isxdigit(parts[3][0]) || !absl::ascii_isxdigit(parts[3][1])) return std::nullopt;
  context.sampled = (absl::HexStringToBytes(parts[3])[0] & 1) != 0;
  return context;
}

std::string ToTraceparent(const TraceContext& context) {
  return absl::StrCat("00-", context.trace_id, "-", context.span_id,
                      context.sampled ? "-01" : "-00");
}

TraceContext SpanOfRun(const TraceContext& run, const std::string& name, std::uint64_t number) {
  const std::string bytes =
      absl::StrCat("ddprun span\n", ToTraceparent(run), "\n", name, "\n", number);
  unsigned char digest[EVP_MAX_MD_SIZE] = {};
  EVP_Digest(bytes.data(), bytes.size(), digest, nullptr, EVP_sha256(), nullptr);
  const std::string hex =
      absl::BytesToHexString({reinterpret_cast<const char*>(digest), kSpanDigits / 2});
  return {run.trace_id, hex, run.sampled};
}

std::optional<std::string> TraceVariable(const Start& start) {
  const auto run = ParseTraceparent(start.traceparent);
  if (!run.has_value()) return std::nullopt;
  return absl::StrCat("TRACEPARENT=",
                      ToTraceparent(SpanOfRun(*run, kRoundSpan, ToNumber(start.round))));
}

TraceSettings ReadTraceSettings(const GetVariable& get_variable, const std::string& host) {
  const auto read = [&](const char* name) { return get_variable(name).value_or(""); };
  const auto of_traces = [&](absl::string_view name) {
    const auto own = get_variable(absl::StrCat("OTEL_EXPORTER_OTLP_TRACES_", name));
    return own.value_or("").empty()
               ? get_variable(absl::StrCat("OTEL_EXPORTER_OTLP_", name)).value_or("")
               : *own;
  };
  const std::string url = of_traces("ENDPOINT");
  const std::vector<std::string> exporters = absl::StrSplit(read("OTEL_TRACES_EXPORTER"), ',');
  const bool exported = exporters.front().empty() ||
                        std::find(exporters.begin(), exporters.end(), "otlp") != exporters.end();
  if (url.empty() || !exported || absl::EqualsIgnoreCase(read("OTEL_SDK_DISABLED"), "true"))
    return {};
  TraceSettings settings;
  settings.parent = ParseTraceparent(read("TRACEPARENT"));
  // Who began the trace has decided that it is not recorded.
  if (settings.parent.has_value() && !settings.parent->sampled) return {};
  if (!absl::StartsWith(url, "http://") && !absl::StartsWith(url, "https://")) {
    settings.warning =
        "traces are not sent: OTEL_EXPORTER_OTLP_ENDPOINT is no http:// or https:// URL";
    return settings;
  }
  settings.url = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").empty()
                     ? absl::StrCat(absl::StripSuffix(url, "/"), "/v1/traces")
                     : url;
  ReadProtocol(of_traces("PROTOCOL"), settings);
  if (!ReadPairs(of_traces("HEADERS"), settings.headers))
    Warn("OTEL_EXPORTER_OTLP_HEADERS has an entry that is no header; it is left out", settings);
  ReadAttributes(get_variable, host, settings);
  return settings;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/web/web_pages.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <chrono>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

constexpr std::size_t kRandomBytes = 16;

bool IsSecret(absl::string_view given, const std::string& secret) {
  return given.size() == secret.size() &&
         CRYPTO_memcmp(given.data(), secret.data(), secret.size()) == 0;
}

absl::string_view WithoutPort(absl::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool port =
      colon != absl::string_view::npos && host.find(']', colon) == absl::string_view::npos;
  return port ? host.substr(0, colon) : host;
}

// A browser sends the cookies of all ports of a host to each: a page has the port as the browser
// knows it (ssh -L may choose another one) in the name of its own.
std::string CookieName(absl::string_view host) {
  return absl::StrCat("ddprun-page-",
                      absl::StripPrefix(host.substr(WithoutPort(host).size()), ":"));
}

// The page of another name that leads here (DNS rebinding) would read ours.
bool IsLoopbackName(absl::string_view host) {
  const absl::string_view name = WithoutPort(host);
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

std::string FieldOf(absl::string_view fields, char between, absl::string_view name) {
  for (const absl::string_view field : absl::StrSplit(fields, between)) {
    const absl::string_view text = absl::StripPrefix(field, " ");
    if (absl::StartsWith(text, absl::StrCat(name, "=")))
      return std::string(text.substr(name.size() + 1));
  }
  return "";
}

WebReply::Headers HeadersOf(const std::string& type) {
  return {{"Content-Type", type},
          {"Cache-Control", "no-store"},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "no-referrer"},
          {"Connection", "close"}};
}

void SendText(int status, const std::string& text, WebReply& reply) {
  reply.Send(status, HeadersOf("text/plain; charset=utf-8"), text + "\n");
}

}  // namespace

absl::StatusOr<std::string> RandomDigits() {
  char random[kRandomBytes];
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random), sizeof random) != 1)
    return absl::InternalError("the system gives no random numbers");
  return absl::BytesToHexString({random, sizeof random});
}

bool WebPages::IsLetIn(const WebRequest& request) const {
  return IsSecret(FieldOf(request.cookie, ';', CookieName(request.host)), token_);
}

void WebPages::Answer(const WebRequest& request, WebReply& reply) const {
  if (!IsLoopbackName(request.host))
    return SendText(403, "this page is served as localhost and 127.0.0.1 only", reply);
  const bool reads = request.method == "GET";
  if (reads && request.path == "/" && !request.query.empty()) return Open(request, reply);
  if (!IsLetIn(request)) {
    return SendText(403, "open the address that ddpctl web has printed: it has the token", reply);
  }
  if (reads && request.path == "/") {
    const absl::StatusOr<std::string> nonce = RandomDigits();
    if (!nonce.ok()) return SendText(500, std::string(nonce.status().message()), reply);
    return reply.Send(200, HeadersOf("text/html; charset=utf-8"), WebPage("null", *nonce));
  }
  if (reads && request.path == "/events") return Stream(reply);
  if (request.method == "POST") return Order(request, reply);
  SendText(404, "there is no such page", reply);
}

// The token goes out of the address, and so out of the browser's history, into a cookie.
void WebPages::Open(const WebRequest& request, WebReply& reply) const {
  if (!IsSecret(FieldOf(request.query, '&', "token"), token_)) {
    return SendText(
        403, "that token is not this page's: open the address that ddpctl web has printed", reply);
  }
  WebReply::Headers headers = HeadersOf("text/plain; charset=utf-8");
  headers.emplace_back("Location", "/");
  headers.emplace_back("Set-Cookie", absl::StrCat(CookieName(request.host), "=", token_,
                                                  "; HttpOnly; SameSite=Strict; Path=/"));
  reply.Send(303, headers, "");
}

void WebPages::Stream(WebReply& reply) const {
  const WebHub::Follower follower(hub_);
  WebReply::Headers headers = HeadersOf("text/event-stream");
  headers.emplace_back("X-Accel-Buffering", "no");  // a proxy as nginx would keep a stream back
  reply.Begin(200, headers);
  std::uint64_t seen = 0;
  while (true) {
    const auto message = hub_.Next(seen, std::chrono::steady_clock::now() + kWebAliveInterval);
    if (!message.ok()) return;
    const std::string text = message->has_value()
                                 ? absl::StrCat("event: ", (*message)->whole ? "whole" : "change",
                                                "\ndata: ", (*message)->json, "\n\n")
                                 : ":\n\n";
    if (!reply.Write(text)) return;
  }
}

void WebPages::Order(const WebRequest& request, WebReply& reply) const {
  if (control_.stop == nullptr)
    return SendText(403, "this page only reads; ddpctl web --web-control lets it stop and drain",
                    reply);
  // A browser says so of each POST; a page of another port is of the same site, but not of the same
  // origin.
  if (request.origin != absl::StrCat("http://", request.host))
    return SendText(403, "orders are taken from this page alone", reply);
  absl::StatusOr<std::string> sentence = absl::NotFoundError("there is no such order");
  if (request.path == "/stop") sentence = control_.stop();
  if (request.path == "/drain") sentence = control_.drain(FieldOf(request.query, '&', "node"));
  SendText(sentence.ok() ? 200 : 409,
           sentence.ok() ? *sentence : std::string(sentence.status().message()), reply);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/https_post.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/http.h>
#include <openssl/httperr.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/addresses.h"

namespace ddprun {
namespace {

template <auto function>
struct Frees {
  template <typename T>
  void operator()(T* pointer) const {
    function(pointer);
  }
};
using OwnedBio = std::unique_ptr<BIO, Frees<BIO_free_all>>;
using OwnedContext = std::unique_ptr<SSL_CTX, Frees<SSL_CTX_free>>;

void FreeText(char* text) { OPENSSL_free(text); }
using OwnedText = std::unique_ptr<char, Frees<FreeText>>;

void FreeHeaders(STACK_OF(CONF_VALUE) * headers) {
  sk_CONF_VALUE_pop_free(headers, X509V3_conf_free);
}

// Empties this thread's queue of errors. The first of TLS says most, and where there is none, the
// last.
std::string TakeReason() {
  std::string reason = "no answer in time";
  bool of_tls = false;
  const char* data = nullptr;
  int flags = 0;
  while (const unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    if (of_tls) continue;  // what follows says only that nothing was sent
    of_tls = ERR_GET_LIB(code) == ERR_LIB_SSL;
    const char* text = ERR_reason_error_string(code);
    reason = text == nullptr ? absl::StrCat("OpenSSL error ", code) : text;
    if ((flags & ERR_TXT_STRING) != 0 && data != nullptr && *data != '\0')
      absl::StrAppend(&reason, " (", data, ")");
  }
  return reason;
}

struct Tls {
  SSL_CTX* context;
  const char* host;
  const char* port;
  const char* proxy;  // [USER:PASSWORD@]HOST:PORT; null: none
  int timeout_s;
};

// As curl and Go have it, a proxy is not asked for what is on this machine.
const char* ProxyFor(const char* host, bool over_tls) {
  const absl::string_view name = host;
  const bool is_own = name == "localhost" || name == "::1" || name == "[::1]" ||
                      (absl::StartsWith(name, "127.") && IsNumericAddress(host));
  return is_own ? nullptr : OSSL_HTTP_adapt_proxy(nullptr, nullptr, host, over_tls ? 1 : 0);
}

// A proxy lets TLS to the server through after CONNECT. False: it refuses, or does not answer.
bool AskProxy(BIO* connection, const Tls& tls) {
  char* user = nullptr;
  if (OSSL_HTTP_parse_url(tls.proxy, nullptr, &user, nullptr, nullptr, nullptr, nullptr, nullptr,
                          nullptr) != 1)
    return false;
  const OwnedText owned(user);
  const std::pair<std::string, std::string> named =
      absl::StrSplit(user == nullptr ? "" : user, absl::MaxSplits(':', 1));
  const bool known = !named.first.empty();
  const OwnedBio unread(BIO_new(BIO_s_null()));
  return OSSL_HTTP_proxy_connect(
             connection, tls.host, tls.port, known ? named.first.c_str() : nullptr,
             known ? named.second.c_str() : nullptr, tls.timeout_s, unread.get(), "ddprun") == 1;
}

// OpenSSL calls it with the connection, to put TLS over it, and again to take it off.
BIO* OverTls(BIO* connection, void* argument, int connects, int /*detail*/) {
  if (connects == 0) {
    BIO* const tls = connection;
    BIO* const below = BIO_pop(tls);
    BIO_free(tls);
    return below;
  }
  const Tls& tls = *static_cast<Tls*>(argument);
  if (tls.proxy != nullptr && !AskProxy(connection, tls)) return nullptr;
  BIO* const over = BIO_new_ssl(tls.context, /*client=*/1);
  SSL* ssl = nullptr;
  if (over == nullptr || BIO_get_ssl(over, &ssl) != 1) return nullptr;
  const bool named =
      IsNumericAddress(tls.host)
          ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), tls.host) == 1
          : SSL_set1_host(ssl, tls.host) == 1 && SSL_set_tlsext_host_name(ssl, tls.host) == 1;
  if (!named) {
    BIO_free(over);
    return nullptr;
  }
  return BIO_push(over, connection);
}

// Where distributions keep the authorities: the OpenSSL in use may have been built for another one.
constexpr const char* kSystemAuthorities[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};

bool LoadAuthorities(SSL_CTX* context, const std::string& file) {
  if (!file.empty()) return SSL_CTX_load_verify_file(context, file.c_str()) == 1;
  bool any = SSL_CTX_set_default_verify_paths(context) == 1;  // SSL_CERT_FILE among them
  for (const char* path : kSystemAuthorities)
    any = SSL_CTX_load_verify_file(context, path) == 1 || any;
  ERR_clear_error();
  return any;
}

OwnedContext MakeContext(const std::string& ca_file) {
  OwnedContext context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      !LoadAuthorities(context.get(), ca_file))
    return nullptr;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

// OpenSSL's client takes an answer of 200 alone for one with a document. Others below 400, as 204,
// are no refusals.
bool IsAccepted() {
  const unsigned long code = ERR_peek_error();
  return ERR_GET_LIB(code) == ERR_LIB_HTTP &&
         ERR_GET_REASON(code) == HTTP_R_STATUS_CODE_UNSUPPORTED;
}

absl::Status Send(const HttpsPost& post, bool over_tls, const char* host, const char* port,
                  const char* path) {
  OwnedContext context;
  if (over_tls) {
    context = MakeContext(post.ca_file);
    if (context == nullptr) {
      return absl::UnavailableError(absl::StrCat("cannot read the authorities of TLS",
                                                 post.ca_file.empty() ? "" : " in ", post.ca_file,
                                                 ": ", TakeReason()));
    }
  }
  const int timeout_s = static_cast<int>(post.timeout.count());
  const char* const proxy = post.through_proxy ? ProxyFor(host, over_tls) : nullptr;
  Tls tls{context.get(), host, port, proxy, timeout_s};
  STACK_OF(CONF_VALUE)* added = nullptr;
  bool complete =
      post.bearer.empty() ||
      X509V3_add_value("Authorization", absl::StrCat("Bearer ", post.bearer).c_str(), &added) == 1;
  for (const auto& [name, value] : post.headers)
    complete = complete && X509V3_add_value(name.c_str(), value.c_str(), &added) == 1;
  const std::unique_ptr<STACK_OF(CONF_VALUE), Frees<FreeHeaders>> headers(added);
  const OwnedBio body(BIO_new_mem_buf(post.body.data(), static_cast<int>(post.body.size())));
  if (!complete || body == nullptr) return absl::UnavailableError(TakeReason());
  const OwnedBio answer(OSSL_HTTP_transfer(
      nullptr, host, port, path, over_tls ? 1 : 0, proxy == nullptr ? "" : proxy, nullptr, nullptr,
      nullptr, over_tls ? OverTls : nullptr, &tls, /*buf_size=*/0, headers.get(),
      post.content_type.c_str(), body.get(), nullptr, /*expect_asn1=*/0, kHttpAnswerBytesMax,
      timeout_s, /*keep_alive=*/0));
  if (answer != nullptr || IsAccepted()) {
    ERR_clear_error();
    return absl::OkStatus();
  }
  return absl::UnavailableError(TakeReason());
}

}  // namespace

absl::Status Post(const HttpsPost& post) {
  ERR_clear_error();
  char* host = nullptr;
  char* port = nullptr;
  char* path = nullptr;
  int tls = 0;
  const bool parsed = OSSL_HTTP_parse_url(post.url.c_str(), &tls, nullptr, &host, &port, nullptr,
                                          &path, nullptr, nullptr) == 1;
  const OwnedText owned[] = {OwnedText(host), OwnedText(port), OwnedText(path)};
  if (!parsed || (tls == 0 && !post.without_tls)) {
    ERR_clear_error();
    return absl::InvalidArgumentError(absl::StrCat("'", post.url, "' is no https:// URL"));
  }
  for (const char c : post.bearer) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c)))
      return absl::InvalidArgumentError("the token has a byte that no header may have");
  }
  return Send(post, tls != 0, host, port, path);
}

}  // namespace ddprun

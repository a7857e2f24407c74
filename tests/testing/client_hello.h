// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/ssl.h>

#include <string>

namespace ddprun {

// A whole ClientHello, as OpenSSL writes it, which offers this version of TLS at most.
// `server_name` may be empty.
inline std::string MakeClientHello(const std::string& server_name,
                                   int version_max = TLS1_3_VERSION) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, version_max);
  SSL* const ssl = SSL_new(context);
  if (!server_name.empty()) SSL_set_tlsext_host_name(ssl, server_name.c_str());
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_connect(ssl);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  std::string hello(data, static_cast<std::size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return hello;
}

}  // namespace ddprun

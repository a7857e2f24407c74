// SPDX-License-Identifier: Apache-2.0
// Certificates that a user's own authority might give out, the wrong ones too.
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <string>

#include "rendezvous/security/credentials.h"

namespace ddprun {

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);

  struct Request {
    std::string name = "node";
    std::string alternative_name;  // "DNS:localhost"
    const char* not_after = "99991231235959Z";
    bool self_signed = false;
  };
  // A leaf of this authority, which trusts this authority.
  TlsCredentials Issue(const Request& request) const;

 private:
  struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  std::unique_ptr<EVP_PKEY, Free> key_;
  std::unique_ptr<X509, Free> certificate_;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Owners of OpenSSL's objects.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace ddprun {

template <typename T, auto kFree>
struct OpensslFree {
  void operator()(T* object) const { kFree(object); }
};
template <typename T, auto kFree>
using OpensslPtr = std::unique_ptr<T, OpensslFree<T, kFree>>;

using KeyPtr = OpensslPtr<EVP_PKEY, EVP_PKEY_free>;
using CertificatePtr = OpensslPtr<X509, X509_free>;
using BioPtr = OpensslPtr<BIO, BIO_free_all>;

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/certificates.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace ddprun {
namespace {

X509* Make(EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key, const TestAuthority::Request& request,
           bool authority) {
  static long serial = 100;
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), "19700101000000Z");
  ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), request.not_after);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(request.name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer ? issuer : certificate));
  X509_set_pubkey(certificate, key);
  const auto add = [certificate](int nid, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_nconf_nid(nullptr, nullptr, nid, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  };
  add(NID_basic_constraints, authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (!request.alternative_name.empty()) add(NID_subject_alt_name, request.alternative_name);
  X509_sign(certificate, issuer_key, nullptr);
  return certificate;
}

template <typename Write>
std::string Pem(Write write) {
  BIO* const bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return text;
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name)
    : key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")),
      certificate_(Make(key_.get(), nullptr, key_.get(), {.name = name}, true)) {}

TlsCredentials TestAuthority::Issue(const Request& request) const {
  const std::unique_ptr<EVP_PKEY, Free> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  const std::unique_ptr<X509, Free> certificate(
      Make(key.get(), request.self_signed ? nullptr : certificate_.get(),
           request.self_signed ? key.get() : key_.get(), request, false));
  return {.ca_pem = Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate_.get()); }),
          .chain_pem = Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate.get()); }),
          .key_pem = Pem([&](BIO* bio) {
            PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace ddprun

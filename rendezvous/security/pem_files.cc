// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/pem_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/input_file.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/security/openssl_ptr.h"

namespace ddprun {
namespace {

absl::StatusOr<std::string> ReadText(const std::string& flag, const std::string& path) {
  absl::StatusOr<InputFile> file = ReadInput(path, kPemBytesMax);
  if (file.ok()) return std::move(file->text);
  if (absl::IsInvalidArgument(file.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", path, " has more than ", kPemBytesMax, " bytes"));
  }
  return absl::NotFoundError(
      absl::StrCat(flag, ": cannot read ", path, ": ", file.status().message()));
}

std::vector<CertificatePtr> Certificates(const std::string& pem) {
  std::vector<CertificatePtr> all;
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  ERR_clear_error();
  return all;
}

absl::Status CheckCertificates(const std::string& flag, const std::string& path,
                               const std::vector<CertificatePtr>& all) {
  if (all.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", path, " has no certificate in PEM (-----BEGIN CERTIFICATE-----)"));
  }
  for (const CertificatePtr& one : all) {
    if (X509_cmp_current_time(X509_get0_notAfter(one.get())) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": a certificate in ", path, " has expired; renew it"));
    }
  }
  return absl::OkStatus();
}

// A key with a passphrase must not make a program without a terminal wait for one.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Status CheckKey(const SecurityOptions& options, const std::string& pem, X509* certificate) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-key: ", options.tls_key,
                     absl::StrContains(pem, "ENCRYPTED")
                         ? " is encrypted; give a key without a passphrase"
                         : " has no private key in PEM (-----BEGIN PRIVATE KEY-----)"));
  }
  const bool fits = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--tls-key: ", options.tls_key,
                                                 " is not the key of the first certificate in ",
                                                 options.tls_cert));
}

}  // namespace

absl::StatusOr<TlsCredentials> ReadPemFiles(const SecurityOptions& options) {
  TlsCredentials credentials;
  absl::StatusOr<std::string> chain = ReadText("--tls-cert", options.tls_cert);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<std::string> key = ReadText("--tls-key", options.tls_key);
  if (!key.ok()) return key.status();
  absl::StatusOr<std::string> ca = ReadText("--tls-ca", options.tls_ca);
  if (!ca.ok()) return ca.status();
  const std::vector<CertificatePtr> certificates = Certificates(*chain);
  absl::Status status = CheckCertificates("--tls-cert", options.tls_cert, certificates);
  status.Update(CheckCertificates("--tls-ca", options.tls_ca, Certificates(*ca)));
  if (status.ok()) status = CheckKey(options, *key, certificates.front().get());
  if (!status.ok()) return status;
  return TlsCredentials{
      .ca_pem = *std::move(ca), .chain_pem = *std::move(chain), .key_pem = *std::move(key)};
}

}  // namespace ddprun

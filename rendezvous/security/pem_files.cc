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

absl::Status CheckKey(const PemFiles& files, const std::string& pem, X509* certificate) {
  const std::string flag = absl::StrCat(files.flags, "-key: ", files.key);
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, absl::StrContains(pem, "ENCRYPTED")
                               ? " is encrypted; give a key without a passphrase"
                               : " has no private key in PEM (-----BEGIN PRIVATE KEY-----)"));
  }
  const bool fits = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is not the key of the first certificate in ", files.cert));
}

// A file of certificates.
absl::StatusOr<std::string> ReadCertificates(const std::string& flag, const std::string& path,
                                             std::vector<CertificatePtr>& certificates) {
  absl::StatusOr<std::string> pem = ReadText(flag, path);
  if (!pem.ok()) return pem;
  certificates = Certificates(*pem);
  if (absl::Status status = CheckCertificates(flag, path, certificates); !status.ok())
    return status;
  return pem;
}

}  // namespace

absl::StatusOr<TlsCredentials> ReadPemFiles(const PemFiles& files) {
  TlsCredentials credentials;
  std::vector<CertificatePtr> own;
  if (!files.cert.empty()) {
    absl::StatusOr<std::string> chain = ReadCertificates(files.flags + "-cert", files.cert, own);
    if (!chain.ok()) return chain.status();
    credentials.chain_pem = *std::move(chain);
    absl::StatusOr<std::string> key = ReadText(files.flags + "-key", files.key);
    if (!key.ok()) return key.status();
    credentials.key_pem = *std::move(key);
  }
  std::vector<CertificatePtr> authorities;
  absl::StatusOr<std::string> ca = ReadCertificates(files.flags + "-ca", files.ca, authorities);
  if (!ca.ok()) return ca.status();
  credentials.ca_pem = *std::move(ca);
  if (own.empty()) return credentials;
  if (absl::Status status = CheckKey(files, credentials.key_pem, own.front().get()); !status.ok())
    return status;
  return credentials;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/credentials.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/security/openssl_ptr.h"
#include "rendezvous/security/pem_files.h"

namespace ddprun {
namespace {

// gRPC goes on trying to connect on threads of its own: one that is in a handshake when the process
// exits must not find OpenSSL cleaned up. Before anything else uses OpenSSL.
[[maybe_unused]] const int kept_at_exit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

constexpr std::size_t kSeedBytes = 32;
// Changed with every change of the derivation, so that old and new versions reject each other.
constexpr char kSalt[] = "ddprun";
constexpr char kAuthorityInfo[] = "v1 certificate authority";
// The secret admits for ever, so an authority does not expire; the certificates that processes sign
// for themselves do, to limit the use of stolen ones. All are valid from 1970 on, since the clock
// of another machine may be behind.
constexpr char kNotBefore[] = "19700101000000Z";
constexpr char kNotAfter[] = "99991231235959Z";
constexpr int kSerialBytes = 16;

absl::Status Broken(const char* what) {
  return absl::InternalError(
      absl::StrCat("OpenSSL cannot ", what, "; check the installation of libssl3"));
}

bool DeriveSeed(const Token& token, unsigned char* seed) {
  const OpensslPtr<EVP_KDF, EVP_KDF_free> kdf(EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr));
  if (kdf == nullptr) return false;
  const OpensslPtr<EVP_KDF_CTX, EVP_KDF_CTX_free> context(EVP_KDF_CTX_new(kdf.get()));
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY,
                                        const_cast<unsigned char*>(token.bytes()), Token::kBytes),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, const_cast<char*>(kSalt),
                                        sizeof kSalt - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(kAuthorityInfo),
                                        sizeof kAuthorityInfo - 1),
      OSSL_PARAM_construct_end()};
  return context != nullptr && EVP_KDF_derive(context.get(), seed, kSeedBytes, parameters) == 1;
}

KeyPtr AuthorityKey(const Token& token) {
  SecretPage seed;
  if (!DeriveSeed(token, seed.data())) return nullptr;
  return KeyPtr(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), kSeedBytes));
}

// Authorities of different secrets have different names: OpenSSL then reports an unknown authority
// and not a bad signature.
std::string AuthorityName(EVP_PKEY* key) {
  unsigned char bytes[kSeedBytes] = {};
  std::size_t size = sizeof bytes;
  EVP_PKEY_get_raw_public_key(key, bytes, &size);
  return absl::StrCat("ddprun run ", absl::BytesToHexString({reinterpret_cast<char*>(bytes), 8}));
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const OpensslPtr<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_nconf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetName(X509_NAME* name, const std::string& common_name) {
  return X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(common_name.data()),
                                    static_cast<int>(common_name.size()), -1, 0) == 1;
}

bool SetValidity(X509* certificate, std::optional<std::time_t> not_after = std::nullopt) {
  if (ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), kNotBefore) != 1) return false;
  ASN1_TIME* const end = X509_getm_notAfter(certificate);
  return not_after ? ASN1_TIME_set(end, *not_after) != nullptr
                   : ASN1_TIME_set_string_X509(end, kNotAfter) == 1;
}

CertificatePtr AuthorityCertificate(EVP_PKEY* key) {
  CertificatePtr certificate(X509_new());
  X509* const x = certificate.get();
  const bool good =
      x != nullptr && X509_set_version(x, X509_VERSION_3) == 1 &&
      ASN1_INTEGER_set(X509_get_serialNumber(x), 1) == 1 && SetValidity(x) &&
      SetName(X509_get_subject_name(x), AuthorityName(key)) &&
      X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 && X509_set_pubkey(x, key) == 1 &&
      AddExtension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      AddExtension(x, x, NID_key_usage, "critical,keyCertSign") &&
      AddExtension(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key, nullptr) > 0;
  return good ? std::move(certificate) : nullptr;
}

struct Leaf {
  std::string common_name;
  std::string alternative_name;  // as OpenSSL writes it: "URI:..."
  const char* usage;             // "clientAuth"
  std::optional<std::time_t> not_after = std::nullopt;
};

CertificatePtr LeafCertificate(const Leaf& leaf, EVP_PKEY* key, X509* authority,
                               EVP_PKEY* authority_key) {
  CertificatePtr certificate(X509_new());
  X509* const x = certificate.get();
  unsigned char serial[kSerialBytes];
  if (x == nullptr || RAND_bytes(serial, sizeof serial) != 1) return nullptr;
  serial[0] = static_cast<unsigned char>((serial[0] & 0x7F) | 0x40);  // positive, of full length
  const OpensslPtr<BIGNUM, BN_free> number(BN_bin2bn(serial, sizeof serial, nullptr));
  const bool good = number != nullptr && X509_set_version(x, X509_VERSION_3) == 1 &&
                    BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x)) != nullptr &&
                    SetValidity(x, leaf.not_after) &&
                    SetName(X509_get_subject_name(x), leaf.common_name) &&
                    X509_set_issuer_name(x, X509_get_subject_name(authority)) == 1 &&
                    X509_set_pubkey(x, key) == 1 &&
                    AddExtension(x, authority, NID_basic_constraints, "critical,CA:FALSE") &&
                    AddExtension(x, authority, NID_key_usage, "critical,digitalSignature") &&
                    AddExtension(x, authority, NID_ext_key_usage, leaf.usage) &&
                    AddExtension(x, authority, NID_authority_key_identifier, "keyid:always") &&
                    AddExtension(x, authority, NID_subject_alt_name, leaf.alternative_name) &&
                    X509_sign(x, authority_key, nullptr) > 0;
  return good ? std::move(certificate) : nullptr;
}

std::string TakeText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  OPENSSL_cleanse(data, static_cast<std::size_t>(size));
  return text;
}

std::string CertificateToPem(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TakeText(bio.get());
}

std::string KeyToPem(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return TakeText(bio.get());
}

absl::StatusOr<TlsCredentials> Mint(const Token& token, const Leaf& leaf, std::time_t now = 0) {
  const KeyPtr authority_key = AuthorityKey(token);
  if (authority_key == nullptr) return Broken("derive a key by HKDF");
  const CertificatePtr authority = AuthorityCertificate(authority_key.get());
  const KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (authority == nullptr || key == nullptr) return Broken("make an Ed25519 certificate");
  const CertificatePtr certificate =
      LeafCertificate(leaf, key.get(), authority.get(), authority_key.get());
  if (certificate == nullptr) return Broken("sign an Ed25519 certificate");
  return TlsCredentials{.ca_pem = CertificateToPem(authority.get()),
                        .chain_pem = CertificateToPem(certificate.get()),
                        .key_pem = KeyToPem(key.get()),
                        .derived = true,
                        .hello_key = DeriveHelloKey(token),
                        .times = {.made = now, .end = leaf.not_after.value_or(0)}};
}

constexpr absl::string_view kRunScheme = "ddprun://run/";
constexpr absl::string_view kOperatorScheme = "ddprun://operator/";

std::string Escaped(absl::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~') {
      text.push_back(c);
    } else {
      absl::StrAppend(&text, "%", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return text;
}

// Absent: not the output of Escaped().
std::optional<std::string> Unescaped(absl::string_view text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      name.push_back(text[i]);
      continue;
    }
    const absl::string_view digits = text.substr(i + 1, 2);
    const bool are_digits = digits.size() == 2 &&
                            absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) &&
                            absl::ascii_isxdigit(static_cast<unsigned char>(digits[1]));
    if (!are_digits) return std::nullopt;
    name.append(absl::HexStringToBytes(digits));
    i += digits.size();
  }
  return name;
}

}  // namespace

std::string NodeUri(absl::string_view run_id, absl::string_view node_id) {
  return absl::StrCat(kRunScheme, Escaped(run_id), "/node/", Escaped(node_id));
}

std::string OperatorUri(const std::optional<std::string>& run_id, absl::string_view name) {
  if (!run_id) return absl::StrCat(kOperatorScheme, Escaped(name));
  return absl::StrCat(kRunScheme, Escaped(*run_id), "/operator/", Escaped(name));
}

std::optional<CertificateScope> ScopeOfUri(absl::string_view uri) {
  if (absl::StartsWith(uri, kOperatorScheme)) return CertificateScope{};
  if (!absl::ConsumePrefix(&uri, kRunScheme)) return std::nullopt;
  const std::size_t end = uri.find('/');
  if (end == uri.npos) return std::nullopt;
  std::optional<std::string> run_id = Unescaped(uri.substr(0, end));
  if (!run_id) return std::nullopt;
  return CertificateScope{std::move(run_id), absl::StartsWith(uri.substr(end), "/node/")};
}

absl::StatusOr<TlsCredentials> MintNodeCredentials(const Token& token, absl::string_view run_id,
                                                   absl::string_view node_id, std::time_t now) {
  return Mint(token,
              {.common_name = "ddprun node",
               .alternative_name = absl::StrCat("URI:", NodeUri(run_id, node_id)),
               .usage = "clientAuth",
               .not_after = now + kNodeCertificateSeconds},
              now);
}

absl::StatusOr<TlsCredentials> MintOperatorCredentials(const Token& token,
                                                       const std::optional<std::string>& run_id,
                                                       absl::string_view name, std::time_t now) {
  return Mint(token,
              {.common_name = "ddprun operator",
               .alternative_name = absl::StrCat("URI:", OperatorUri(run_id, name)),
               .usage = "clientAuth",
               .not_after = now + kOperatorCertificateSeconds},
              now);
}

Expired WhichExpired(const CertificateTimes& node, const CertificateTimes& service,
                     std::time_t now) {
  if (node.end != 0 && now > node.end) return Expired::kNode;
  return service.end != 0 && node.made > service.end ? Expired::kService : Expired::kNone;
}

static absl::StatusOr<TlsCredentials> MintService(const Token& token,
                                                  std::optional<std::time_t> not_after) {
  return Mint(token,
              {.common_name = kServiceName,
               .alternative_name = absl::StrCat("DNS:", kServiceName, ",DNS:*.", kServiceName),
               .usage = "serverAuth",
               .not_after = not_after},
              not_after ? *not_after - kNodeCertificateSeconds : 0);
}

absl::StatusOr<TlsCredentials> MintServiceCredentials(const Token& token) {
  return MintService(token, std::nullopt);
}

absl::StatusOr<TlsCredentials> MintProbeCredentials(const Token& token) {
  return Mint(token, {.common_name = "ddprun probe",
                      .alternative_name = "URI:ddprun://probe",
                      .usage = "clientAuth"});
}

absl::StatusOr<TlsCredentials> MintHostCredentials(const Token& token, std::time_t now) {
  return MintService(token, now + kNodeCertificateSeconds);
}

absl::Status CheckSecurityOptions(const SecurityOptions& options) {
  const int own = !options.tls_cert.empty() + !options.tls_key.empty() + !options.tls_ca.empty();
  if (own != 0 && own != 3) {
    return absl::InvalidArgumentError(
        "--tls-cert, --tls-key and --tls-ca belong together; give all three or none");
  }
  if (options.insecure && (own != 0 || !options.token_file.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("--insecure means plain text and ",
                                                   own != 0 ? "--tls-cert" : "--token-file",
                                                   " does not; leave one of them out"));
  }
  if (own != 0 && !options.token_file.empty()) {
    return absl::InvalidArgumentError(
        "--token-file and --tls-cert are two ways to identify a node; leave one of them out");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Token>> OpenToken(const SecurityOptions& options,
                                               std::optional<absl::StatusOr<Token>> variable,
                                               const GetVariable& get_variable) {
  if (options.insecure || !options.tls_cert.empty()) return std::optional<Token>();
  absl::StatusOr<Token> token = absl::UnknownError("");
  if (variable.has_value()) {
    token = *std::move(variable);
  } else if (!options.token_file.empty()) {
    token = ReadNamedTokenFile(options.token_file);
  } else if (const auto credential = CredentialTokenPath(get_variable)) {
    token = ReadNamedTokenFile(*credential);
  } else {
    const absl::StatusOr<std::string> path = DefaultTokenPath(get_variable);
    if (!path.ok()) return path.status();
    token = ReadOrMakeTokenFile(*path);
  }
  if (!token.ok()) return token.status();
  return std::optional<Token>(*std::move(token));
}

absl::StatusOr<Security> Security::Open(const SecurityOptions& options,
                                        std::optional<absl::StatusOr<Token>> variable,
                                        const GetVariable& get_variable) {
  Security security;
  if (options.insecure) return security;
  if (!options.tls_cert.empty()) {
    absl::StatusOr<TlsCredentials> own =
        ReadPemFiles({.cert = options.tls_cert, .key = options.tls_key, .ca = options.tls_ca});
    if (!own.ok()) return own.status();
    security.own_ = *std::move(own);
    return security;
  }
  absl::StatusOr<std::optional<Token>> token =
      OpenToken(options, std::move(variable), get_variable);
  if (!token.ok()) return token.status();
  security.token_ = *std::move(token);
  return security;
}

absl::StatusOr<std::optional<TlsCredentials>> Security::ForNode(absl::string_view run_id,
                                                                absl::string_view node_id) const {
  if (!token_.has_value()) return own_;
  return MintNodeCredentials(*token_, run_id, node_id);
}

absl::StatusOr<std::optional<TlsCredentials>> Security::ForOperator(
    const std::optional<std::string>& run_id, absl::string_view name) const {
  if (!token_.has_value()) return own_;
  return MintOperatorCredentials(*token_, run_id, name);
}

absl::StatusOr<std::optional<TlsCredentials>> Security::ForService() const {
  if (!token_.has_value()) return own_;
  return MintServiceCredentials(*token_);
}

absl::StatusOr<std::optional<TlsCredentials>> Security::ForProbe() const {
  if (!token_.has_value()) return own_;
  return MintProbeCredentials(*token_);
}

absl::StatusOr<std::optional<TlsCredentials>> Security::ForHost() const {
  if (!token_.has_value()) return own_;
  return MintHostCredentials(*token_);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Certificates from a secret, checked with OpenSSL as TLS will.
#include "rendezvous/security/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

const char* const kOne = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const char* const kOther = "10112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

Token TokenOf(const char* digits) { return *Token::Parse(digits, "it"); }

struct Freer {
  void operator()(X509* x) const { X509_free(x); }
  void operator()(BIO* x) const { BIO_free(x); }
  void operator()(X509_STORE* x) const { X509_STORE_free(x); }
  void operator()(X509_STORE_CTX* x) const { X509_STORE_CTX_free(x); }
  void operator()(EVP_PKEY* x) const { EVP_PKEY_free(x); }
};
using Certificate = std::unique_ptr<X509, Freer>;

Certificate Read(const std::string& pem) {
  const std::unique_ptr<BIO, Freer> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

// What TLS does with a peer's certificate; X509_V_OK or the reason against it.
int Verify(const std::string& leaf, const std::string& ca, int purpose) {
  const std::unique_ptr<X509_STORE, Freer> store(X509_STORE_new());
  const Certificate authority = Read(ca);
  const Certificate certificate = Read(leaf);
  X509_STORE_add_cert(store.get(), authority.get());
  const std::unique_ptr<X509_STORE_CTX, Freer> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr);
  X509_STORE_CTX_set_purpose(context.get(), purpose);
  X509_verify_cert(context.get());
  return X509_STORE_CTX_get_error(context.get());
}

TEST(CredentialsTest, TheAuthorityIsTheSameEverywhereAndAnotherForAnotherSecret) {
  const auto first = MintServiceCredentials(TokenOf(kOne));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->ca_pem, MintServiceCredentials(TokenOf(kOne))->ca_pem);
  EXPECT_NE(first->ca_pem, MintServiceCredentials(TokenOf(kOther))->ca_pem);
  // Written down, so that a change of what is derived is a decision: nodes of both kinds could not
  // meet.
  const Certificate certificate = Read(first->ca_pem);
  unsigned char key[32];
  std::size_t size = sizeof key;
  ASSERT_EQ(EVP_PKEY_get_raw_public_key(X509_get0_pubkey(certificate.get()), key, &size), 1);
  std::string digits;
  for (const unsigned char byte : key) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    digits += two;
  }
  EXPECT_EQ(digits, "01edec3ae4b48a7947083d2b8b9274984d5140418e9c93adfca67e03dbee7100");
}

TEST(CredentialsTest, BothSidesVerify) {
  const auto node = MintNodeCredentials(TokenOf(kOne), "job", "host-1-ab");
  const auto service = MintServiceCredentials(TokenOf(kOne));
  ASSERT_TRUE(node.ok() && service.ok());
  EXPECT_EQ(node->ca_pem, service->ca_pem);
  EXPECT_EQ(Verify(node->chain_pem, service->ca_pem, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
  EXPECT_EQ(Verify(service->chain_pem, node->ca_pem, X509_PURPOSE_SSL_SERVER), X509_V_OK);
}

TEST(CredentialsTest, ANodeIsNoServiceAndTheOtherWayRound) {
  const auto node = MintNodeCredentials(TokenOf(kOne), "job", "a");
  const auto service = MintServiceCredentials(TokenOf(kOne));
  EXPECT_EQ(Verify(node->chain_pem, node->ca_pem, X509_PURPOSE_SSL_SERVER),
            X509_V_ERR_INVALID_PURPOSE);
  EXPECT_EQ(Verify(service->chain_pem, node->ca_pem, X509_PURPOSE_SSL_CLIENT),
            X509_V_ERR_INVALID_PURPOSE);
}

TEST(CredentialsTest, AProbeReachesAServiceAndIsNobodyThere) {
  const auto probe = MintProbeCredentials(TokenOf(kOne));
  const auto service = MintServiceCredentials(TokenOf(kOne));
  EXPECT_EQ(Verify(probe->chain_pem, service->ca_pem, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
  EXPECT_EQ(Verify(probe->chain_pem, service->ca_pem, X509_PURPOSE_SSL_SERVER),
            X509_V_ERR_INVALID_PURPOSE);
  EXPECT_EQ(probe->times.end, 0);
  EXPECT_FALSE(ScopeOfUri("ddprun://probe").has_value());
}

TEST(CredentialsTest, AnotherSecretsDoNotVerify) {
  const auto node = MintNodeCredentials(TokenOf(kOne), "job", "a");
  const auto other = MintNodeCredentials(TokenOf(kOther), "job", "a");
  EXPECT_EQ(Verify(node->chain_pem, other->ca_pem, X509_PURPOSE_SSL_CLIENT),
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

TEST(CredentialsTest, WhichCertificateTheOtherSideWillReject) {
  constexpr std::time_t kNow = 1'800'000'000;
  constexpr std::time_t kYear = 365L * 24 * 3600;
  const auto of_node = [](std::time_t now) {
    return MintNodeCredentials(TokenOf(kOne), "job", "a", now)->times;
  };
  const CertificateTimes host = MintHostCredentials(TokenOf(kOne), kNow)->times;
  EXPECT_EQ(WhichExpired(of_node(kNow), host, kNow), Expired::kNone);
  EXPECT_EQ(WhichExpired(of_node(kNow - kYear), host, kNow), Expired::kNode);
  EXPECT_EQ(WhichExpired(of_node(kNow + kYear), host, kNow), Expired::kService);
  EXPECT_EQ(WhichExpired(of_node(kNow), {}, kNow), Expired::kNone);
  for (const std::time_t skew : {kNodeCertificateSeconds, -kNodeCertificateSeconds})
    EXPECT_EQ(WhichExpired(of_node(kNow + skew), host, kNow), Expired::kNone);
  // A service that runs alone has a certificate without an end.
  const CertificateTimes alone = MintServiceCredentials(TokenOf(kOne))->times;
  EXPECT_EQ(WhichExpired(of_node(kNow + kYear), alone, kNow), Expired::kNone);
  EXPECT_EQ(WhichExpired(of_node(kNow - kYear), alone, kNow), Expired::kNode);
  EXPECT_EQ(WhichExpired({}, host, kNow), Expired::kNone);
}

TEST(CredentialsTest, ALeafCannotSignAnother) {
  const auto node = MintNodeCredentials(TokenOf(kOne), "job", "a");
  const Certificate leaf = Read(node->chain_pem);
  EXPECT_EQ(X509_check_ca(leaf.get()), 0);
}

TEST(CredentialsTest, EachProcessHasAKeyOfItsOwn) {
  const auto first = MintNodeCredentials(TokenOf(kOne), "job", "a");
  const auto second = MintNodeCredentials(TokenOf(kOne), "job", "a");
  EXPECT_NE(first->key_pem, second->key_pem);
  EXPECT_NE(first->chain_pem, second->chain_pem);
  EXPECT_THAT(first->key_pem, HasSubstr("BEGIN PRIVATE KEY"));
}

TEST(CredentialsTest, TheNodesIdIsInItsCertificate) {
  const auto node = MintNodeCredentials(TokenOf(kOne), "job", "host,DNS:rendezvous.ddprun");
  ASSERT_TRUE(node.ok()) << node.status();
  const Certificate leaf = Read(node->chain_pem);
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(leaf.get(), NID_subject_alt_name, nullptr, nullptr));
  ASSERT_NE(names, nullptr);
  ASSERT_EQ(sk_GENERAL_NAME_num(names), 1);
  const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, 0);
  ASSERT_EQ(name->type, GEN_URI);
  const std::string uri(
      reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.uniformResourceIdentifier)),
      static_cast<std::size_t>(ASN1_STRING_length(name->d.uniformResourceIdentifier)));
  GENERAL_NAMES_free(names);
  EXPECT_EQ(uri, "ddprun://run/job/node/host%2cDNS%3arendezvous.ddprun");
  EXPECT_EQ(uri, NodeUri("job", "host,DNS:rendezvous.ddprun"));
  EXPECT_EQ(X509_check_host(leaf.get(), kServiceName, 0, 0, nullptr), 0);
}

TEST(CredentialsTest, WhatACertificateIsFor) {
  const std::string odd = "a/node/b %41";  // as if it were more than a run's name
  EXPECT_EQ(ScopeOfUri(NodeUri("job", "n")), (CertificateScope{"job", true}));
  EXPECT_EQ(ScopeOfUri(NodeUri(odd, odd)), (CertificateScope{odd, true}));
  EXPECT_EQ(ScopeOfUri(NodeUri("", "n")), (CertificateScope{"", true}));
  EXPECT_EQ(ScopeOfUri(OperatorUri("job", "ctl")), CertificateScope{"job"});
  EXPECT_EQ(ScopeOfUri(OperatorUri(std::nullopt, "ctl")), CertificateScope{});
  for (const char* const other : {"", "ddprun://node/a", "ddprun://run/job", "spiffe://x/run/job",
                                  "ddprun://run/%4/node/a", "ddprun://run/%zz/node/a"}) {
    EXPECT_EQ(ScopeOfUri(other), std::nullopt) << other;
  }
  EXPECT_NE(NodeUri("a", "b"), NodeUri("a/node/b", ""));
}

// Whoever steals one has it for a while, not for ever.
TEST(CredentialsTest, CertificatesOfNodesAndOperatorsEnd) {
  const std::time_t now = std::time(nullptr);
  const auto service = MintServiceCredentials(TokenOf(kOne));
  const auto judge = [&](const absl::StatusOr<TlsCredentials>& credentials) {
    return Verify(credentials->chain_pem, service->ca_pem, X509_PURPOSE_SSL_CLIENT);
  };
  constexpr std::time_t kMinute = 60;
  const std::time_t node_ends = now - kNodeCertificateSeconds;
  EXPECT_EQ(judge(MintNodeCredentials(TokenOf(kOne), "job", "a", node_ends + kMinute)), X509_V_OK);
  EXPECT_EQ(judge(MintNodeCredentials(TokenOf(kOne), "job", "a", node_ends - kMinute)),
            X509_V_ERR_CERT_HAS_EXPIRED);
  const std::time_t operator_ends = now - kOperatorCertificateSeconds;
  EXPECT_EQ(judge(MintOperatorCredentials(TokenOf(kOne), "job", "a", operator_ends + kMinute)),
            X509_V_OK);
  EXPECT_EQ(judge(MintOperatorCredentials(TokenOf(kOne), "job", "a", operator_ends - kMinute)),
            X509_V_ERR_CERT_HAS_EXPIRED);
  const auto node = MintNodeCredentials(TokenOf(kOne), "job", "a");
  const auto host = [&](std::time_t then) {
    return Verify(MintHostCredentials(TokenOf(kOne), then)->chain_pem, node->ca_pem,
                  X509_PURPOSE_SSL_SERVER);
  };
  EXPECT_EQ(host(now), X509_V_OK);
  EXPECT_EQ(host(node_ends - kMinute), X509_V_ERR_CERT_HAS_EXPIRED);
  // A machine whose clock is ahead can join all the same.
  EXPECT_EQ(judge(MintNodeCredentials(TokenOf(kOne), "job", "a", now + kNodeCertificateSeconds)),
            X509_V_OK);
}

TEST(CredentialsTest, OptionsThatContradictEachOther) {
  EXPECT_TRUE(CheckSecurityOptions({}).ok());
  EXPECT_TRUE(CheckSecurityOptions({.insecure = true}).ok());
  EXPECT_TRUE(CheckSecurityOptions({.tls_cert = "a", .tls_key = "b", .tls_ca = "c"}).ok());
  const std::pair<SecurityOptions, const char*> cases[] = {
      {{.tls_cert = "a"}, "all three or none"},
      {{.tls_cert = "a", .tls_ca = "c"}, "all three or none"},
      {{.token_file = "t", .insecure = true}, "--insecure means plain text and --token-file"},
      {{.insecure = true, .tls_cert = "a", .tls_key = "b", .tls_ca = "c"}, "and --tls-cert"},
      {{.token_file = "t", .tls_cert = "a", .tls_key = "b", .tls_ca = "c"}, "two ways"},
  };
  for (const auto& [options, words] : cases) {
    EXPECT_THAT(std::string(CheckSecurityOptions(options).message()), HasSubstr(words));
  }
}

TEST(CredentialsTest, PlainTextOnlyByName) {
  const auto no_variable = [](const std::string&) { return std::optional<std::string>(); };
  const auto plain = Security::Open({.insecure = true}, std::nullopt, no_variable);
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE((*plain->ForNode("job", "a")).has_value());
  EXPECT_FALSE((*plain->ForService()).has_value());
  EXPECT_THAT(std::string(Security::Open({}, std::nullopt, no_variable).status().message()),
              HasSubstr("HOME is not set"));
}

TEST(CredentialsTest, TheVariableComesFirst) {
  const auto no_variable = [](const std::string&) { return std::optional<std::string>(); };
  const auto security =
      Security::Open({.token_file = "/nonexistent"}, Token::Parse(kOne, "it"), no_variable);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ((**security->ForNode("job", "a")).ca_pem,
            MintServiceCredentials(TokenOf(kOne))->ca_pem);
  const auto bad = Security::Open({}, Token::Parse("x", "DDPRUN_TOKEN"), no_variable);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("DDPRUN_TOKEN has 1 characters"));
}

}  // namespace
}  // namespace ddprun

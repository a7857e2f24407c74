// SPDX-License-Identifier: Apache-2.0
// A user's own certificates, made here by the openssl program as a user would.
#include "rendezvous/security/pem_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class PemFilesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = ::testing::TempDir() + "/ddprun-pem-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    for (const std::string name : {"a", "b"}) {
      Run("openssl req -x509 -newkey ed25519 -nodes -subj /CN=" + name + " -days 2 -keyout " +
          name + ".key -out " + name + ".crt");
    }
    MakeExpired();
    Run("openssl pkcs8 -topk8 -in a.key -passout pass:x -out locked.key");
    std::ofstream(folder_ + "/noise") << "not a certificate";
    std::ofstream(folder_ + "/large") << std::string(2 << 20, 'x');
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static void Run(const std::string& command) {
    ASSERT_EQ(std::system(("cd " + folder_ + " && " + command + " 2>/dev/null").c_str()), 0)
        << command;
  }

  // openssl's commands make none that has ended already.
  static void MakeExpired() {
    std::FILE* file = std::fopen((folder_ + "/a.crt").c_str(), "r");
    X509* const certificate = PEM_read_X509(file, nullptr, nullptr, nullptr);
    std::fclose(file);
    file = std::fopen((folder_ + "/a.key").c_str(), "r");
    EVP_PKEY* const key = PEM_read_PrivateKey(file, nullptr, nullptr, nullptr);
    std::fclose(file);
    ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), "20010101000000Z");
    X509_sign(certificate, key, nullptr);
    file = std::fopen((folder_ + "/expired.crt").c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }

  static std::string Complaint(const std::string& cert, const std::string& key,
                               const std::string& ca) {
    const auto read = ReadPemFiles(
        {.cert = folder_ + "/" + cert, .key = folder_ + "/" + key, .ca = folder_ + "/" + ca});
    return std::string(read.status().message());
  }

  static std::string folder_;
};
std::string PemFilesTest::folder_;

TEST_F(PemFilesTest, GoodOnes) { EXPECT_EQ(Complaint("a.crt", "a.key", "b.crt"), ""); }

TEST_F(PemFilesTest, EachMistakeIsNamedWithItsFlagAndFile) {
  EXPECT_THAT(Complaint("none", "a.key", "b.crt"), HasSubstr("--tls-cert: cannot read " + folder_));
  EXPECT_THAT(Complaint("a.crt", "none", "b.crt"), HasSubstr("--tls-key: cannot read " + folder_));
  EXPECT_THAT(Complaint("a.crt", "a.key", "none"), HasSubstr("--tls-ca: cannot read " + folder_));
  EXPECT_THAT(Complaint("noise", "a.key", "b.crt"), HasSubstr("noise has no certificate in PEM"));
  EXPECT_THAT(Complaint("a.crt", "noise", "b.crt"), HasSubstr("noise has no private key in PEM"));
  EXPECT_THAT(Complaint("a.crt", "a.key", "noise"), HasSubstr("--tls-ca: "));
  EXPECT_THAT(Complaint("a.crt", "b.key", "b.crt"), HasSubstr("b.key is not the key of the first"));
  EXPECT_THAT(Complaint("a.crt", "locked.key", "b.crt"), HasSubstr("locked.key is encrypted"));
  EXPECT_THAT(Complaint("expired.crt", "a.key", "b.crt"), HasSubstr("expired.crt has expired"));
  EXPECT_THAT(Complaint("large", "a.key", "b.crt"), HasSubstr("large has more than 1048576 bytes"));
}

}  // namespace
}  // namespace ddprun

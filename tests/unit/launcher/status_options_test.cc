// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

auto Parse(Arguments arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), "status");
  const auto get = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return ParseCtlOptions(arguments, get);
}

CtlOptions Parsed(const Arguments& arguments, const Variables& variables = {}) {
  const auto parsed = Parse(arguments, variables);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<CtlOptions>(*parsed) : CtlOptions{};
}

std::string Error(const Arguments& arguments) {
  const auto parsed = Parse(arguments);
  EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
  return std::string(parsed.status().message());
}

TEST(StatusOptionsTest, WhereTheServiceIs) {
  EXPECT_EQ(Parsed({"--rdzv-endpoint", "head"}).service.endpoint, (Endpoint{"head", 29400}));
  EXPECT_EQ(Parsed({"--rdzv_endpoint=[::1]:7"}).service.endpoint, (Endpoint{"::1", 7}));
  EXPECT_EQ(Parsed({"--master-addr", "10.0.0.1"}).service.endpoint, (Endpoint{"10.0.0.1", 29500}));
  EXPECT_EQ(Parsed({"--master-addr=a", "--master-port=9"}).service.endpoint, (Endpoint{"a", 9}));
  EXPECT_EQ(Parsed({}, {{"PET_RDZV_ENDPOINT", "head:1"}}).service.endpoint, (Endpoint{"head", 1}));
  EXPECT_EQ(Parsed({}).service.endpoint, Endpoint());  // that of a detached run
  EXPECT_THAT(Error({"--rdzv-endpoint", "head:x"}), HasSubstr("'head:x' is not HOST"));
  EXPECT_THAT(Error({"--master-addr", "a", "--master-port", "0"}), HasSubstr("--master-port '0'"));
}

TEST(StatusOptionsTest, WhatIsAskedAndHow) {
  const CtlOptions none = Parsed({"--rdzv-endpoint", "head"});
  EXPECT_EQ(none.run_id, "");
  EXPECT_FALSE(none.json);
  EXPECT_EQ(none.timeout, kStatusTimeoutDefault);
  const CtlOptions all = Parsed({"--rdzv-endpoint", "head", "--rdzv-id", "job", "--json",
                                 "--timeout", "0.5", "--token-file", "t"});
  EXPECT_EQ(all.run_id, "job");
  EXPECT_TRUE(all.json);
  EXPECT_EQ(all.timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(all.security.token_file, "t");
  EXPECT_THAT(Error({"--rdzv-endpoint", "head", "--timeout", "0"}), HasSubstr("--timeout '0'"));
  EXPECT_THAT(Error({"--rdzv-endpoint", "head", "--insecure", "--token-file", "t"}),
              HasSubstr("--insecure"));
}

TEST(StatusOptionsTest, WhatItDoesNotKnow) {
  EXPECT_THAT(Error({"--rdzv-endpoint", "head", "job"}), HasSubstr("does not know 'job'"));
  EXPECT_THAT(Error({"--nnodes", "2"}), HasSubstr("does not know '--nnodes'"));
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_THAT(std::get<ShowText>(*help).text, HasSubstr("Usage: ddprun status"));
}

}  // namespace
}  // namespace ddprun

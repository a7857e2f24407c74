// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// As a training writes its results.
class EarlierResultsTest : public ::testing::Test {
 protected:
  std::string Train(const std::string& training, const std::string& weights) {
    EarlierResults earlier(files_.folder(), "net.pth", training);
    // Replaced, as AtomicFile does it, not written into.
    Replace("net.pth", weights);
    Replace("net.pth.json", R"({"training": ")" + training + "\"}");
    const std::string kept = earlier.Kept();
    Replace("summary.json", R"({"model_file": "elsewhere/net.pth"})");
    return kept;
  }
  void Replace(const std::string& name, const std::string& text) {
    std::filesystem::remove(files_.Path(name));
    files_.Write(name, text);
  }

  const TempFiles files_;
};

TEST_F(EarlierResultsTest, AreKeptWithTheirSummary) {
  EXPECT_EQ(Train("a", "weights of a"), "");
  EXPECT_EQ(Train("b", "weights of b"), files_.Path("net-1.pth"));
  EXPECT_EQ(Train("c", "weights of c"), files_.Path("net-2.pth"));
  EXPECT_EQ(TextOf(files_.Path("net-1.pth")), "weights of a");
  EXPECT_EQ(TextOf(files_.Path("net-2.pth")), "weights of b");
  EXPECT_EQ(TextOf(files_.Path("net.pth")), "weights of c");
  EXPECT_THAT(TextOf(files_.Path("net-2.pth.json")), HasSubstr("\"b\""));
  EXPECT_TRUE(std::filesystem::exists(files_.Path("summary-1.json")));
}

TEST_F(EarlierResultsTest, ATrainingReplacesItsOwn) {
  Train("a", "weights of a");
  EXPECT_EQ(Train("a", "weights of a, later"), "");
  EXPECT_EQ(TextOf(files_.Path("net.pth")), "weights of a, later");
  EXPECT_FALSE(std::filesystem::exists(files_.Path("net-1.pth")));
}

TEST_F(EarlierResultsTest, TheSameWeightsAreNotKeptTwice) {
  Train("a", "weights");
  EXPECT_EQ(Train("b", "weights"), "");
  EXPECT_FALSE(std::filesystem::exists(files_.Path("net-1.pth")));
  EXPECT_FALSE(std::filesystem::exists(files_.Path("summary-1.json")));
}

TEST_F(EarlierResultsTest, AModelWithoutADescriptionIsAnEarlierOne) {
  files_.Write("net.pth", "from somewhere");
  EXPECT_EQ(Train("a", "weights"), files_.Path("net-1.pth"));
}

TEST_F(EarlierResultsTest, ANameThatIsTakenIsPassedOver) {
  Train("a", "weights of a");
  files_.Write("summary-1.json", "mine");
  EXPECT_EQ(Train("b", "weights of b"), files_.Path("net-2.pth"));
  EXPECT_EQ(TextOf(files_.Path("summary-1.json")), "mine");
}

TEST(FindRunModel, IsTheFileThatTheSummaryNames) {
  const TempFiles files;
  const auto found = [&] { return FindRunModel(files.folder(), [](const auto&) {}); };
  EXPECT_EQ(found().file, "");
  files.Write("net.pth", "weights");
  EXPECT_EQ(found().file, "") << "any file";
  for (const char* summary : {"{", "[]", "{}", R"({"model_file": 1})", R"({"model_file": ""})",
                              R"({"model_file": "gone.pth"})", R"({"model_file": ".."})"}) {
    files.Write("summary.json", summary);
    EXPECT_EQ(found().file, "") << summary;
  }
  files.Write("summary.json", R"({"model_file": "/another/machine/net.pth"})");
  EXPECT_EQ(found().file, files.Path("net.pth"));
  EXPECT_FALSE(found().checkpoint.has_value());
}

}  // namespace
}  // namespace ddprun

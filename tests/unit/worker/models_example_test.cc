// SPDX-License-Identifier: Apache-2.0
// The README shows a model being added: what it shows compiles, and is a model as all others are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include "worker/train/models/models.h"

#include "tests/testing/paths.h"

namespace ddprun {

namespace {

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(SourcePath(path)).rdbuf();
  return text.str();
}

TEST(ExampleModel, IsTheOneThatTheReadmeShows) {
  const std::string example = ReadText("tests/unit/worker/models_example.cc");
  ASSERT_FALSE(example.empty());
  EXPECT_NE(ReadText("worker/README.md").find("```cpp\n" + example + "```\n"), std::string::npos);
}

TEST(ExampleModel, CanBeTrained) {
  const auto model = MakeModel("perceptron", {.height = 8, .width = 8, .classes = 4});
  const at::Tensor scores = model->forward(at::randn({2, 3, 8, 8}));
  EXPECT_EQ(scores.sizes(), (std::vector<std::int64_t>{2, 4}));
  scores.sum().backward();
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

}  // namespace
}  // namespace ddprun

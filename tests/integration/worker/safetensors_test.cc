// SPDX-License-Identifier: Apache-2.0
// Safetensors files between C++ and the real Python package, both ways.
#include "worker/library/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "tests/testing/paths.h"
#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

NamedTensors Tensors() {
  const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"bool", at::kBool}, {"u8", at::kByte},   {"i8", at::kChar},  {"i16", at::kShort},
      {"i32", at::kInt},   {"i64", at::kLong},  {"f16", at::kHalf}, {"bf16", at::kBFloat16},
      {"f32", at::kFloat}, {"f64", at::kDouble}};
  NamedTensors tensors;
  for (const auto& [name, type] : types)
    tensors.emplace_back(name, at::arange(6).reshape({2, 3}).to(type));
  tensors.emplace_back("scalar", at::scalar_tensor(7.5f));
  tensors.emplace_back("empty", at::empty({3, 0}));
  return tensors;
}

int Python(const std::string& verb, const std::string& path) {
  return std::system(("'" + TestPython() + "' '" +
                      SourcePath("tests/integration/worker/safetensors_peer.py") + "' " + verb +
                      " '" + path + "'")
                         .c_str());
}

TEST(SafetensorsPeerTest, PythonReadsWhatWeWrite) {
  const TempFiles files;
  WriteSafetensors(files.Path("a"), Tensors(), {{"format", "pt"}, {"about", "{\"step\": 3}"}});
  EXPECT_EQ(Python("read", files.Path("a")), 0);
}

TEST(SafetensorsPeerTest, WeReadWhatPythonWrites) {
  const TempFiles files;
  ASSERT_EQ(Python("write", files.Path("a")), 0);
  const SafetensorsFile file(files.Path("a"));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("about", "{\"step\": 3}"), Pair("format", "pt")));
  const NamedTensors expected = Tensors();
  ASSERT_EQ(file.tensors().size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const auto got = std::find_if(file.tensors().begin(), file.tensors().end(),
                                  [&, &n = name](const auto& item) { return item.first == n; });
    ASSERT_NE(got, file.tensors().end()) << name;
    EXPECT_EQ(got->second.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(got->second, tensor)) << name;
  }
}

}  // namespace
}  // namespace ddprun

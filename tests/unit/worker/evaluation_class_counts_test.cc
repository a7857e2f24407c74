// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/class_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/train/evaluation/metric_sums.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a rank alone has counted.
ClassCounts Counted(const at::Tensor& scores, const at::Tensor& labels, std::int64_t classes) {
  MetricSums sums(classes);
  for (int i = 0; i < 2; ++i) sums.Add(scores, labels, at::zeros({}), 1);
  const at::Tensor values = sums.Values();
  return MakeClassCounts(
      values.const_data_ptr<double>() + values.numel() - classes * CountsPerClass(classes),
      classes);
}

TEST(ClassCounts, AreTheConfusionMatrixOfAllBatches) {
  // Predicted: 0, 2, 2, 1.
  const at::Tensor scores =
      at::tensor({3., 1., 2., 0., 1., 2., 1., 0., 9., 0., 5., 4.}).view({4, 3});
  const ClassCounts counts = Counted(scores, at::tensor({0, 0, 2, 2}, at::kLong), 3);
  EXPECT_THAT(counts.matrix,
              ElementsAre(ElementsAre(2, 0, 2), ElementsAre(0, 0, 0), ElementsAre(0, 2, 2)));
  EXPECT_THAT(counts.images, ElementsAre(4, 0, 4));
  EXPECT_THAT(counts.right, ElementsAre(2, 0, 2));
  EXPECT_EQ(ToTable(counts, {"cat", "dog", "ape"}),
            "class  accuracy  as 0  as 1  as 2\n"
            "0 cat   50.00 %     2     0     2\n"
            "1 dog         -     0     0     0\n"
            "2 ape   50.00 %     0     2     2");
}

TEST(ClassCounts, OfManyClassesAreRightOnesAndTheTableHasTheLowest) {
  constexpr std::int64_t kClasses = kMatrixClassesMax + 1;
  // An image of each class but the last; the classes from 30 on are known.
  at::Tensor scores = at::eye(kClasses).narrow(0, 0, kClasses - 1).clone();
  scores.narrow(0, 0, 30).zero_().select(1, 100).fill_(1);
  const ClassCounts counts = Counted(scores, at::arange(kClasses - 1), kClasses);
  EXPECT_THAT(counts.matrix, IsEmpty());
  EXPECT_EQ(counts.right[29], 0);
  EXPECT_EQ(counts.right[30], 2);
  EXPECT_EQ(counts.images[100], 0);
  const std::string table = ToTable(counts, {"cat"});
  EXPECT_TRUE(
      table.starts_with("lowest of 101 classes  accuracy  images\n"
                        "0 cat                    0.00 %       2\n"
                        "1                        0.00 %       2\n"))
      << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 10);
}

TEST(ClassCounts, OfVeryManyClassesAreNone) {
  EXPECT_EQ(CountsPerClass(kCountedClassesMax), 2);
  EXPECT_EQ(CountsPerClass(kCountedClassesMax + 1), 0);
  const ClassCounts counts =
      Counted(at::eye(2, kCountedClassesMax + 1), at::arange(2), kCountedClassesMax + 1);
  EXPECT_EQ(counts.classes(), 0);
  EXPECT_EQ(ToTable(counts, {}), "");
}

}  // namespace
}  // namespace ddprun

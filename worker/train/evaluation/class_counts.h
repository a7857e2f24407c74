// SPDX-License-Identifier: Apache-2.0
// What the test images of each class were taken for: accuracy by class and confusion matrix. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

// With more classes right and wrong are counted, not the pairs: nobody reads 10,000 numbers more.
inline constexpr std::int64_t kMatrixClassesMax = 100;
// With more nothing is counted: summary.json, of which a megabyte is read, has their names.
inline constexpr std::int64_t kCountedClassesMax = 1000;
// With more a table shows as many classes, those with the lowest accuracies.
inline constexpr std::size_t kTableClassesMax = 10;

// How many counts there are of each class.
constexpr std::int64_t CountsPerClass(std::int64_t classes) {
  if (classes > kCountedClassesMax) return 0;
  return classes > kMatrixClassesMax ? 2 : classes;
}

struct ClassCounts {
  // By the class of the images:
  std::vector<std::int64_t> images;
  std::vector<std::int64_t> right;
  // and by the class that they were taken for; empty with more than kMatrixClassesMax.
  std::vector<std::vector<std::int64_t>> matrix;

  std::size_t classes() const { return images.size(); }
  // A share. The class must have images.
  double Accuracy(std::size_t label) const {
    return static_cast<double>(right[label]) / static_cast<double>(images[label]);
  }
};

// `counts` has CountsPerClass() numbers for each class: images that were taken for each class, or
// wrong ones and right ones.
ClassCounts MakeClassCounts(const double* counts, std::int64_t classes);

// "3 cat", or "3" where the names are not known.
std::string ClassName(const std::vector<std::string>& names, std::size_t label);

// Accuracy and row of the matrix of each class; with more than kTableClassesMax the accuracies of
// those with the lowest. Empty if nothing was counted.
std::string ToTable(const ClassCounts& counts, const std::vector<std::string>& names);

}  // namespace ddprun

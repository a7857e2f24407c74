// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/class_counts.h"

#include <algorithm>
#include <numeric>

#include "worker/library/base/text.h"
#include "worker/train/metrics/console.h"

namespace ddprun {
namespace {

std::string AccuracyText(const ClassCounts& counts, std::size_t label) {
  return counts.images[label] == 0 ? "-" : Percent(counts.Accuracy(label));
}

std::string MatrixTable(const ClassCounts& counts, const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> rows{{"class", "accuracy"}};
  for (std::size_t label = 0; label < counts.classes(); ++label)
    rows[0].push_back("as " + std::to_string(label));
  for (std::size_t label = 0; label < counts.classes(); ++label) {
    std::vector<std::string>& row =
        rows.emplace_back(std::vector{ClassName(names, label), AccuracyText(counts, label)});
    for (const std::int64_t count : counts.matrix[label]) row.push_back(std::to_string(count));
  }
  return ToColumns(rows);
}

std::string LowestTable(const ClassCounts& counts, const std::vector<std::string>& names) {
  std::vector<std::size_t> labels;
  for (std::size_t label = 0; label < counts.classes(); ++label) {
    if (counts.images[label] > 0) labels.push_back(label);
  }
  std::stable_sort(labels.begin(), labels.end(), [&counts](std::size_t a, std::size_t b) {
    return counts.Accuracy(a) < counts.Accuracy(b);
  });
  labels.resize(std::min(labels.size(), kTableClassesMax));
  std::vector<std::vector<std::string>> rows{
      {"lowest of " + std::to_string(counts.classes()) + " classes", "accuracy", "images"}};
  for (const std::size_t label : labels)
    rows.push_back({ClassName(names, label), AccuracyText(counts, label),
                    std::to_string(counts.images[label])});
  return ToColumns(rows);
}

}  // namespace

ClassCounts MakeClassCounts(const double* counts, std::int64_t classes) {
  const std::int64_t columns = CountsPerClass(classes);
  ClassCounts result;
  if (columns == 0) return result;
  const bool has_matrix = classes <= kMatrixClassesMax;
  for (std::int64_t label = 0; label < classes; ++label, counts += columns) {
    const std::vector<std::int64_t> row(counts, counts + columns);
    result.images.push_back(std::accumulate(row.begin(), row.end(), std::int64_t{0}));
    result.right.push_back(row[static_cast<std::size_t>(has_matrix ? label : 1)]);
    if (has_matrix) result.matrix.push_back(row);
  }
  return result;
}

std::string ClassName(const std::vector<std::string>& names, std::size_t label) {
  return std::to_string(label) + (label < names.size() ? " " + names[label] : "");
}

std::string ToTable(const ClassCounts& counts, const std::vector<std::string>& names) {
  if (counts.classes() == 0) return "";
  return counts.classes() > kTableClassesMax ? LowestTable(counts, names)
                                             : MatrixTable(counts, names);
}

}  // namespace ddprun

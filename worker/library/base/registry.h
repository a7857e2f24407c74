// SPDX-License-Identifier: Apache-2.0
// Named implementations of one kind (models, data sets, optimizers, losses, metrics). Each adds
// itself before main() runs:
//
//   const bool kLinearAdded = Models().Add("linear", MakeLinear);
//
// in its own .cc file, which must be linked as a whole (worker/CMakeLists.txt: REGISTERS).
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

template <typename Entry>
class Registry {
 public:
  // `option` is what users choose an entry with: "--model".
  explicit Registry(std::string option) : option_(std::move(option)) {}

  // Returns true, so that it can initialise a constant. Throws std::logic_error if the name is
  // taken.
  bool Add(const std::string& name, Entry entry) {
    if (!entries_.emplace(name, std::move(entry)).second)
      throw std::logic_error(option_ + " " + name + " is registered twice");
    return true;
  }

  // Throws std::invalid_argument that lists the names.
  const Entry& Get(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second;
    std::string names;
    for (const auto& entry : entries_) names += (names.empty() ? "" : ", ") + entry.first;
    throw std::invalid_argument(option_ + " " + name + " is not known; choose one of " + names);
  }

  // Sorted.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : entries_) names.push_back(entry.first);
    return names;
  }

  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  const std::string option_;
  std::map<std::string, Entry> entries_;
};

}  // namespace ddprun

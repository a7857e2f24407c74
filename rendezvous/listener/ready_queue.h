// SPDX-License-Identifier: Apache-2.0
// Connections that wait for their handshake, by group, so that one busy group does not block the
// others. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace ddprun {

class ReadyQueue {
 public:
  bool empty() const { return groups_.empty(); }
  std::size_t groups() const { return groups_.size(); }

  void Add(const std::string& group, int fd) { groups_[group].push_back(fd); }

  void Remove(const std::string& group, int fd) {
    const auto it = groups_.find(group);
    it->second.erase(std::find(it->second.begin(), it->second.end(), fd));
    if (it->second.empty()) groups_.erase(it);
  }

  // The next group, round robin. The queue must not be empty.
  const std::string& NextGroup() {
    auto it = groups_.upper_bound(turn_);
    if (it == groups_.end()) it = groups_.begin();
    return turn_ = it->first;
  }

  // Takes the newest of that group: under overload the oldest has little time left and would fail
  // in the middle of its handshake. Its peer connects again and is then the newest.
  int TakeNewest(const std::string& group) {
    const auto it = groups_.find(group);
    const int fd = it->second.back();
    it->second.pop_back();
    if (it->second.empty()) groups_.erase(it);
    return fd;
  }

 private:
  std::map<std::string, std::vector<int>> groups_;  // the newest last; none is empty
  std::string turn_;                                // the group that was served last
};

}  // namespace ddprun

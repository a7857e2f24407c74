// SPDX-License-Identifier: Apache-2.0
// Connections that wait until a handshake may begin, by group: a crowd in one group must not keep
// out the others. Pure.
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

  // The group whose turn it is; one after another. Not of an empty queue.
  const std::string& NextGroup() {
    auto it = groups_.upper_bound(turn_);
    if (it == groups_.end()) it = groups_.begin();
    return turn_ = it->first;
  }

  // Takes the newest of that group: where more come than can be served, the oldest has hardly any
  // time left and would come to nothing in the middle of its handshake. It will be made again, and
  // is new then.
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

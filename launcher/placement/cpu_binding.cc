// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/cpu_binding.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

// <linux/mempolicy.h> of older systems lacks the last one.
constexpr int kPolicyDefault = 0;
constexpr int kPolicyPreferred = 1;
constexpr int kPolicyPreferredMany = 5;

std::vector<unsigned long> ToMask(const std::vector<int>& numbers) {
  if (numbers.empty()) return {};
  std::vector<unsigned long> mask(static_cast<std::size_t>(numbers.back()) / kWordBits + 1);
  for (const int number : numbers) {
    mask[static_cast<std::size_t>(number) / kWordBits] |=
        1ul << (static_cast<std::size_t>(number) % kWordBits);
  }
  return mask;
}

}  // namespace

CpuBinding::CpuBinding(const CpuSet& cpus, const std::vector<int>& memory_nodes)
    : cpu_mask_(ToMask(cpus)),
      node_mask_(ToMask(memory_nodes)),
      one_node_(memory_nodes.size() == 1) {}

bool CpuBinding::Apply() const {
  if (!cpu_mask_.empty() &&
      syscall(SYS_sched_setaffinity, 0, cpu_mask_.size() * sizeof(long), cpu_mask_.data()) != 0) {
    return false;
  }
  int policy = kPolicyDefault;
  if (node_mask_.empty() || syscall(SYS_get_mempolicy, &policy, nullptr, 0ul, nullptr, 0ul) != 0 ||
      policy != kPolicyDefault) {
    return true;
  }
  // The kernel reads one bit less than the given number.
  const unsigned long bits = node_mask_.size() * kWordBits + 1;
  const int wanted = one_node_ ? kPolicyPreferred : kPolicyPreferredMany;
  // Of several nodes at once a kernel before 5.15 knows nothing: its own rule is near enough.
  syscall(SYS_set_mempolicy, wanted, node_mask_.data(), bits);
  return true;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/cpu_binding.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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
  if (SetsMemory()) syscall(SYS_set_mempolicy, Policy(), node_mask_.data(), Bits());
  return true;
}

std::optional<MemoryPolicy> CpuBinding::memory_policy() const {
  if (!SetsMemory()) return std::nullopt;
  return MemoryPolicy{SYS_set_mempolicy, Policy(), Bits(), node_mask_};
}

bool CpuBinding::SetsMemory() const {
  int policy = kPolicyDefault;
  return !node_mask_.empty() &&
         syscall(SYS_get_mempolicy, &policy, nullptr, 0ul, nullptr, 0ul) == 0 &&
         policy == kPolicyDefault;
}

// A kernel before 5.15 cannot prefer several nodes at once: its own rule is near enough.
int CpuBinding::Policy() const { return one_node_ ? kPolicyPreferred : kPolicyPreferredMany; }

// The kernel reads one bit less than the given number.
unsigned long CpuBinding::Bits() const { return node_mask_.size() * kWordBits + 1; }

// A thread that comes after it was looked for has the CPUs of the one that has made it, which may
// not have been bound by then: until a pass finds no new one.
bool CpuBinding::ApplyTo(pid_t pid) const {
  if (cpu_mask_.empty()) return true;
  std::set<pid_t> bound;
  for (bool any_new = true; any_new;) {
    any_new = false;
    std::error_code gone;
    for (const auto& task :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), gone)) {
      pid_t thread = 0;
      if (!absl::SimpleAtoi(task.path().filename().string(), &thread)) continue;
      if (!bound.insert(thread).second) continue;
      any_new = true;
      if (syscall(SYS_sched_setaffinity, thread, cpu_mask_.size() * sizeof(long),
                  cpu_mask_.data()) != 0 &&
          errno != ESRCH) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace ddprun

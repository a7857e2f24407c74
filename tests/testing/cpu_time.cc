// SPDX-License-Identifier: Apache-2.0
// Linked into every GoogleTest program: appends its CPU time and that of its children to the file
// that DDPRUN_TEST_RECORDS names, for tests/ci_report.py.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

double SecondsOf(int who) {
  rusage used{};
  getrusage(who, &used);
  return double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         double(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// The value of --gtest_filter, under which ctest knows the test.
std::string Filter() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  const std::string flag = "--gtest_filter=";
  const auto found = words.find(flag);
  return found == std::string::npos ? "" : words.c_str() + found + flag.size();
}

// After the tests and before the process's statics are destroyed, which threads may still use.
class Record : public testing::Environment {
 public:
  void TearDown() override {
    const char* path = std::getenv("DDPRUN_TEST_RECORDS");
    if (path == nullptr) return;
    const std::string filter = Filter();
    if (filter.empty() || filter.find_first_of("\"\\") != std::string::npos) return;
    char line[1024];
    const int length =
        std::snprintf(line, sizeof(line), "{\"filter\": \"%s\", \"cpu\": %.2f}\n", filter.c_str(),
                      SecondsOf(RUSAGE_SELF) + SecondsOf(RUSAGE_CHILDREN));
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    if (length < int(sizeof(line)) && write(fd, line, std::size_t(length)) < 0)
      std::perror("DDPRUN_TEST_RECORDS");
    close(fd);
  }
};

[[maybe_unused]] const testing::Environment* const record =
    testing::AddGlobalTestEnvironment(new Record);

}  // namespace

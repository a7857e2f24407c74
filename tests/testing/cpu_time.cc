// SPDX-License-Identifier: Apache-2.0
// Linked into every GoogleTest program: appends the CPU time of itself and its children, whole and
// by test, to the file that DDPRUN_TEST_RECORDS names, for tests/ci_report.py.
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

double Seconds() { return SecondsOf(RUSAGE_SELF) + SecondsOf(RUSAGE_CHILDREN); }

class ByTest : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override { begin_ = Seconds(); }
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    words_ += words_.empty() ? "" : ", ";
    words_ += "\"" + name + "\": " + std::to_string(Seconds() - begin_);
  }
  const std::string& words() const { return words_; }  // members of a JSON object

 private:
  double begin_ = 0;
  std::string words_;
};

// After the tests and before the process's statics are destroyed, which threads may still use.
class Record : public testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv("DDPRUN_TEST_RECORDS") == nullptr) return;
    by_test_ = new ByTest;
    testing::UnitTest::GetInstance()->listeners().Append(by_test_);
  }
  void TearDown() override {
    const char* path = std::getenv("DDPRUN_TEST_RECORDS");
    const std::string filter = Filter();
    if (path == nullptr || by_test_ == nullptr || filter.empty() ||
        filter.find_first_of("\"\\") != std::string::npos) {
      return;
    }
    const std::string line = "{\"filter\": \"" + filter +
                             "\", \"cpu\": " + std::to_string(Seconds()) + ", \"tests\": {" +
                             by_test_->words() + "}}\n";
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    if (write(fd, line.data(), line.size()) < 0) std::perror("DDPRUN_TEST_RECORDS");
    close(fd);
  }

 private:
  ByTest* by_test_ = nullptr;  // owned by GoogleTest
};

[[maybe_unused]] const testing::Environment* const record =
    testing::AddGlobalTestEnvironment(new Record);

}  // namespace

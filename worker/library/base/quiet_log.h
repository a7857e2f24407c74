// SPDX-License-Identifier: Apache-2.0
// Suppresses LibTorch's own log lines.
#pragma once

#include <c10/util/Logging.h>

#include <cstdlib>

namespace ddprun {

// While it lives LibTorch logs nothing: TCPStore reports each try to connect and each wait that
// ends with a stack of frames, and what counts is in the exception. A person who has set
// TORCH_CPP_LOG_LEVEL wants to see it. One at a time; what it sets is of the whole process.
class QuietLog {
 public:
  QuietLog() {
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = ::c10::GLOG_FATAL;
  }
  ~QuietLog() { FLAGS_caffe2_log_level = level_; }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  const int level_ = FLAGS_caffe2_log_level;
};

}  // namespace ddprun

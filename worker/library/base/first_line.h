// SPDX-License-Identifier: Apache-2.0
// Errors of LibTorch as one line.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace ddprun {

// Without the C++ frames and the lines on where in LibTorch.
inline std::string FirstLine(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

inline std::string FirstLine(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) return FirstLine(*c10_error);
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace ddprun

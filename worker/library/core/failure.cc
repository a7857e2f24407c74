// SPDX-License-Identifier: Apache-2.0
#include "ddprun/main.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string_view>

#include "proto/failure_record.h"
#include "worker/library/base/first_line.h"
#include "worker/library/checkpoint/stop_signal.h"

namespace ddprun {
namespace {

// LibTorch's reducer and tensors speak to users of Python's DistributedDataParallel. A sentence of
// theirs is known by its beginning.
struct Translation {
  std::string_view theirs;
  const char* ours;
};
constexpr Translation kTranslations[] = {
    {"Expected to have finished reduction in the prior iteration",
     "a parameter got no gradient in the backward before this forward, so that the ranks cannot "
     "average it; set find_unused_parameters in DistributedDataParallel::Options, or let all that "
     "Forward() returns take part in the loss"},
    {"Expected to mark a variable ready only once",
     "a parameter got a gradient after it was counted as done in this step: it is used outside of "
     "Forward(), or in a second backward; "
     "compute all that the loss needs within one Forward() for each backward"},
};

std::string InOurWords(const std::string& sentence) {
  for (const Translation& translation : kTranslations) {
    if (sentence.starts_with(translation.theirs)) return translation.ours;
  }
  return sentence;
}

}  // namespace

int ReportFailure(const std::string& program, const std::string& sentence, int code) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), sentence.c_str());
  const char* error_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (error_file == nullptr || *error_file == '\0') return code;
  const absl::Status written =
      WriteFailureRecord(error_file, {.message = sentence, .traceback = ""},
                         static_cast<long long>(std::time(nullptr)));
  if (!written.ok())
    std::fprintf(stderr, "%s: %s\n", program.c_str(), std::string(written.message()).c_str());
  return code;
}

int ReportFailure(const std::string& program, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::invalid_argument& usage) {
    return ReportFailure(program, usage.what(), kExitUsage);
  } catch (const Stopped& stopped) {
    return ReportFailure(program, stopped.what(), kExitSignal + stopped.signal);
  } catch (const std::exception& failure) {
    return ReportFailure(program, InOurWords(FirstLine(failure)), kExitFailure);
  } catch (...) {
    return ReportFailure(program, "an exception that is no std::exception", kExitFailure);
  }
}

}  // namespace ddprun

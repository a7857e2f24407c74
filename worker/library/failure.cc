// SPDX-License-Identifier: Apache-2.0
#include "ddprun/failure.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>

#include "proto/failure_record.h"
#include "worker/base/first_line.h"
#include "worker/checkpoint/stop_signal.h"

namespace ddprun {

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
    return ReportFailure(program, FirstLine(failure), kExitFailure);
  } catch (...) {
    return ReportFailure(program, "an exception that is no std::exception", kExitFailure);
  }
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/observe/metrics.h"

namespace ddprun {

absl::StatusOr<std::unique_ptr<MetricsExporter>> StartMetricsExporter(
    const std::string& address, int port, std::function<std::vector<MetricSeries>()> collect) {
  std::error_code ignored;
  const std::string path =
      (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / kMetricsModuleName)
          .string();
  // Never closed: its code may be running until the process ends.
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("metrics are served by ", kMetricsModuleName,
                     ", which belongs beside this program and cannot be loaded: ", dlerror()));
  }
  const auto start = reinterpret_cast<StartMetricsFunction>(dlsym(module, kMetricsModuleEntry));
  if (start == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(path, " is of another version; install the one that came with this program"));
  }
  const std::string bind = HostPort(address, port);
  std::string error;
  const SignalsBlocked blocked;
  std::unique_ptr<MetricsExporter> exporter(start(bind, &collect, &error));
  if (exporter == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics at ", bind, " (", error,
                                               "); is the port in use? --metrics-port names "
                                               "another one"));
  }
  return exporter;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// `ddprun simulate`: the goodput that a fleet would have.
#include <langinfo.h>
#include <malloc.h>

#include <clocale>
#include <cstring>
#include <utility>

#include "launcher/base/command.h"
#include "launcher/commands/commands.h"
#include "launcher/simulate/forecast.h"

namespace ddprun {
namespace {

constexpr int kKeptBytes = 1 << 28;

}  // namespace

int SimulateCommand(Invocation invocation) {
  const auto parsed = ParseSimulateRequest(invocation.arguments);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  if (const auto* show = std::get_if<ShowText>(&*parsed)) return Show(show->text);
  // The effects of one step are a megabyte for 1000 nodes: not to be mapped and zeroed at each.
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_TOP_PAD, kKeptBytes / 4);
  const Forecast forecast = MakeForecast(std::get<SimulateRequest>(*parsed));
  if (forecast.request.json) return Show(ForecastJson(forecast));
  std::setlocale(LC_CTYPE, "");
  return Show(ForecastText(forecast, std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0));
}

}  // namespace ddprun

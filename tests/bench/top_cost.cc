// SPDX-License-Identifier: Apache-2.0
// What a redraw of `ddpctl top` costs.
//   top_cost [NODES [WORKERS]]
// CPU time from a status to the lines on a screen of 200 x 60 characters, by order of the rows, and
// of reading the service's answer, which another thread does.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "launcher/top/top_view.h"
#include "rendezvous/wire/status_convert.h"
#include "tests/unit/launcher/top_fixture.h"

namespace {

double CpuMilliseconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

template <typename Call>
void Measure(const char* name, Call call) {
  std::vector<double> each;
  for (int i = 0; i < 50; ++i) {
    const double start = CpuMilliseconds();
    call();
    each.push_back(CpuMilliseconds() - start);
  }
  std::sort(each.begin(), each.end());
  std::printf("%-28s median %.2f ms  most %.2f ms\n", name, each[each.size() / 2], each.back());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ddprun;
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 1250;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 8;
  const RunStatus run = TopRun("job", nodes, workers);
  Top top;
  for (int sort = 0; sort <= static_cast<int>(TopSort::kMemory); ++sort) {
    Measure(NameOf(top.sort()), [&] {
      StatusCame came{{.software_version = "1", .runs = {run}}};
      top.On(std::move(came));
      DrawTop(top, "heading", {200, 60}, true);
    });
    Press(top, "o");
  }
  Press(top, "/host-77");
  Measure("a filter", [&] {
    top.On(StatusCame{{.software_version = "1", .runs = {run}}});
    DrawTop(top, "heading", {200, 60}, true);
  });
  Measure("a key", [&] {
    Press(top, "/7");
    DrawTop(top, "heading", {200, 60}, true);
    top.OnKey({TopKey::Kind::kErase}, 40);
  });
  const std::string bytes = ToProto(run).SerializeAsString();
  std::printf("the answer has %zu bytes\n", bytes.size());
  Measure("reading the answer", [&] {
    v1::RunStatus message;
    message.ParseFromString(bytes);
    FromProto(message);
  });
  return 0;
}

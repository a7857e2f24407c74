// SPDX-License-Identifier: Apache-2.0
// What it costs a worker to tell of its progress.
//   progress_cost [CALLS]
// A call of ProgressSender (as in `train`, which makes five a step), which sends at most ten
// messages a second, and a message that every call sends (as a script would), while somebody reads.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "proto/progress_message.h"
#include "worker/library/progress/progress_sender.h"

namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

template <typename Call>
void Measure(const char* name, int calls, Call call) {
  std::vector<double> each;
  each.reserve(static_cast<std::size_t>(calls));
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    call(i);
    each.push_back(Microseconds(Clock::now() - start));
  }
  std::sort(each.begin(), each.end());
  const auto at = [&each](double share) {
    return each[static_cast<std::size_t>(share * static_cast<double>(each.size() - 1))];
  };
  std::printf("%-28s p50 %.2f us  p99 %.2f us  p99.9 %.2f us\n", name, at(0.5), at(0.99),
              at(0.999));
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 200'000;
  std::string folder = "/tmp/ddprun-progress-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const std::string path = folder + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int reader = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (bind(reader, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return 1;
  std::thread agent([reader] {
    char text[ddprun::kProgressMessageBytesMax];
    while (recv(reader, text, sizeof(text), 0) > 0) {
    }
  });
  {
    ddprun::ProgressSender sender(path);
    Measure("ProgressSender::Send", calls, [&sender](int i) {
      ddprun::ProgressMessage message;
      message.step = i;
      message.section = "data";
      sender.Send(message);
    });
  }
  const int writer = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  Measure("a message each", calls, [&](int i) {
    const std::string text = "STEP=" + std::to_string(i) + "\nSECTION=data\n";
    sendto(writer, text.data(), text.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address),
           sizeof(address));
  });
  // An empty datagram ends the reader.
  while (sendto(writer, "", 0, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) != 0) {
    std::this_thread::yield();
  }
  agent.join();
  unlink(path.c_str());
  rmdir(folder.c_str());
  return 0;
}

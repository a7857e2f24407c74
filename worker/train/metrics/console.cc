// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/console.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string_view>

namespace ddprun {
namespace {

constexpr std::size_t kBarCells = 24;
constexpr std::size_t kBarCellsMin = 8;  // a shorter one says nothing
constexpr std::size_t kUnknownColumns = 80;

// The terminal on which a bar stands; -1: none does.
std::atomic<int> terminal_with_bar{-1};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler reads it");

void EraseAndEnd(int signal) {
  EraseBar();
  raise(signal);  // SA_RESETHAND: it ends the program when this handler is left
}

// Where nothing else handles the signal.
bool EraseOnSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = EraseAndEnd;
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  return true;
}

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

// 0:35, 12:05, 3:07:00
std::string Clock(std::chrono::duration<double> time) {
  const auto seconds = static_cast<long long>(std::ceil(time.count()));
  const long long hours = seconds / 3600;
  if (hours == 0) return Format("%lld:%02lld", seconds / 60, seconds % 60);
  return Format("%lld:%02lld:%02lld", hours, seconds / 60 % 60, seconds % 60);
}

}  // namespace

std::string ToLine(const StepReport& report) {
  return Format("epoch %lld/%lld batch %lld/%lld loss %.4f lr %.4f img/s %.0f",
                static_cast<long long>(report.epoch), static_cast<long long>(report.epochs),
                static_cast<long long>(report.batch), static_cast<long long>(report.batches),
                report.loss, report.learning_rate, report.images_per_second);
}

std::string ToBar(const BarReport& report, std::size_t columns) {
  const double share =
      report.steps > 0 ? static_cast<double>(report.step) / static_cast<double>(report.steps) : 1.0;
  std::string text =
      Format("%3.0f%% ETA %s epoch %lld/%lld step %lld/%lld loss %.4f %.0f img/s", share * 100,
             Clock(report.left).c_str(), static_cast<long long>(report.epoch),
             static_cast<long long>(report.epochs), static_cast<long long>(report.step),
             static_cast<long long>(report.steps), report.loss, report.images_per_second);
  if (report.accuracy) text += Format(" acc %.1f%%", *report.accuracy * 100);
  if (report.data_wait >= kDataWaitShown)
    text += Format(" waiting for data %.0f%%", report.data_wait * 100);
  const std::size_t around = std::string_view("[] ").size() + text.size();
  const std::size_t cells =
      columns == 0 ? kBarCells : std::min(kBarCells, columns - std::min(columns, around));
  if (cells < kBarCellsMin) return text.substr(0, columns);
  const auto full =
      static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells));
  std::string bar(full, '=');
  if (full < cells) bar += '>';
  bar.resize(cells, ' ');
  return "[" + bar + "] " + text;
}

std::string ToTable(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::string table;
  for (const auto& [name, value] : rows) {
    table += (table.empty() ? "" : "\n") + name + std::string(width - name.size() + 2, ' ') + value;
  }
  return table;
}

std::string ToColumns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    text += (text.empty() ? "" : "\n") + row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (std::size_t i = 1; i < row.size(); ++i)
      text += std::string(2 + widths[i] - row[i].size(), ' ') + row[i];
  }
  return text;
}

Console::~Console() {
  if (bar_shown_ && options_.erase_bar) Write("\x1b[2K");
  terminal_with_bar = -1;
}

void Console::Line(const std::string& text) {
  const bool erase = bar_shown_ && options_.erase_bar;
  bar_shown_ = false;
  Write((erase ? "\x1b[2K" : "") + text + "\n");
  terminal_with_bar = -1;
}

void Console::Bar(const std::string& text) {
  if (!options_.bar) return;
  last_bar_ = std::chrono::steady_clock::now();
  if (!options_.erase_bar) return Write(text + "\r");
  const int fd = fileno(options_.out);
  pollfd terminal{.fd = fd, .events = POLLOUT, .revents = 0};
  if (fd >= 0 && poll(&terminal, 1, 0) == 0) return;
  [[maybe_unused]] static const bool erased_on_signals = EraseOnSignals();
  bar_shown_ = true;
  terminal_with_bar = fd;
  Write("\x1b[2K" + text + "\r");
}

std::size_t Console::BarColumns() const {
  if (!options_.erase_bar) return 0;
  winsize size{};
  const bool known = ioctl(fileno(options_.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (known ? size.ws_col : kUnknownColumns) - 1;  // in the last column some wrap
}

bool Console::BarIsDue(std::chrono::steady_clock::time_point now) const {
  return options_.bar && now - last_bar_ >= kBarInterval;
}

void EraseBar() {
  constexpr std::string_view kErase = "\r\x1b[2K";
  const int fd = terminal_with_bar.exchange(-1);
  if (fd >= 0) [[maybe_unused]]
    const ssize_t written = write(fd, kErase.data(), kErase.size());
}

void Console::Write(const std::string& text) {
  // One write for each line: the agent, and other ranks on the same terminal, see no halves.
  std::fwrite(text.data(), 1, text.size(), options_.out);
  std::fflush(options_.out);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "worker/reporter.h"

#include <algorithm>
#include <cmath>

namespace ddprun {
namespace {

constexpr int kBarCells = 24;

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

}  // namespace

std::string ToLine(const StepReport& report) {
  return Format("epoch %lld/%lld batch %lld/%lld loss %.4f lr %.4f img/s %.0f",
                static_cast<long long>(report.epoch), static_cast<long long>(report.epochs),
                static_cast<long long>(report.batch), static_cast<long long>(report.batches),
                report.loss, report.learning_rate, report.images_per_second);
}

std::string ToBar(std::int64_t step, std::int64_t steps, double loss, double images_per_second,
                  std::chrono::duration<double> left) {
  const double share = steps > 0 ? static_cast<double>(step) / static_cast<double>(steps) : 1.0;
  const int full = std::clamp(static_cast<int>(share * kBarCells), 0, kBarCells);
  std::string cells(static_cast<std::size_t>(full), '=');
  if (full < kBarCells) cells += '>';
  cells.resize(kBarCells, ' ');
  const auto seconds = static_cast<long long>(std::ceil(left.count()));
  return Format("[%s] %3.0f%% step %lld/%lld loss %.4f %.0f img/s ETA %lld:%02lld", cells.c_str(),
                share * 100, static_cast<long long>(step), static_cast<long long>(steps), loss,
                images_per_second, seconds / 60, seconds % 60);
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

Reporter::~Reporter() {
  if (bar_shown_ && options_.erase_bar) Write("\x1b[2K");
}

void Reporter::Line(const std::string& text) {
  const bool erase = bar_shown_ && options_.erase_bar;
  bar_shown_ = false;
  Write((erase ? "\x1b[2K" : "") + text + "\n");
}

void Reporter::Bar(const std::string& text) {
  if (!options_.bar) return;
  bar_shown_ = true;
  last_bar_ = std::chrono::steady_clock::now();
  Write((options_.erase_bar ? "\x1b[2K" : "") + text + "\r");
}

bool Reporter::BarIsDue(std::chrono::steady_clock::time_point now) const {
  return options_.bar && now - last_bar_ >= kBarInterval;
}

void Reporter::Write(const std::string& text) {
  // One write for each line: the agent, and other ranks on the same terminal, see no halves.
  std::fwrite(text.data(), 1, text.size(), options_.out);
  std::fflush(options_.out);
}

}  // namespace ddprun

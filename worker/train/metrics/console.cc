// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/console.h"

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

std::string ToBar(const BarReport& report) {
  const double share =
      report.steps > 0 ? static_cast<double>(report.step) / static_cast<double>(report.steps) : 1.0;
  const int full = std::clamp(static_cast<int>(share * kBarCells), 0, kBarCells);
  std::string bar(static_cast<std::size_t>(full), '=');
  if (full < kBarCells) bar += '>';
  bar.resize(kBarCells, ' ');
  bar = Format("[%s] %3.0f%% step %lld/%lld loss %.4f", bar.c_str(), share * 100,
               static_cast<long long>(report.step), static_cast<long long>(report.steps),
               report.loss);
  if (report.accuracy) bar += Format(" acc %.1f%%", *report.accuracy * 100);
  bar += Format(" %.0f img/s", report.images_per_second);
  if (report.data_wait >= kDataWaitShown)
    bar += Format(" waiting for data %.0f%%", report.data_wait * 100);
  return bar + " ETA " + Clock(report.left);
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
}

void Console::Line(const std::string& text) {
  const bool erase = bar_shown_ && options_.erase_bar;
  bar_shown_ = false;
  Write((erase ? "\x1b[2K" : "") + text + "\n");
}

void Console::Bar(const std::string& text) {
  if (!options_.bar) return;
  bar_shown_ = true;
  last_bar_ = std::chrono::steady_clock::now();
  Write((options_.erase_bar ? "\x1b[2K" : "") + text + "\r");
}

bool Console::BarIsDue(std::chrono::steady_clock::time_point now) const {
  return options_.bar && now - last_bar_ >= kBarInterval;
}

void Console::Write(const std::string& text) {
  // One write for each line: the agent, and other ranks on the same terminal, see no halves.
  std::fwrite(text.data(), 1, text.size(), options_.out);
  std::fflush(options_.out);
}

}  // namespace ddprun

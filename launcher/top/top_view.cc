// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/ctl/status_text.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

constexpr std::size_t kTroublesShown = 2;  // sentences about the run
constexpr int kEventsShown = 4;
constexpr int kRowsForEvents = 18;  // a lower screen has none
constexpr int kSparkWidth = 24;
constexpr int kBarWidth = 30;

constexpr std::array<const char*, 8> kSparks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr char kAsciiSparks[] = "_.:-=+*#";

// Of the character at the start of `text`; 0: it is not UTF-8.
std::size_t CharacterBytes(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = first < 0x80                    ? 1
                            : first >= 0xC2 && first < 0xE0 ? 2
                            : first >= 0xE0 && first < 0xF0 ? 3
                            : first >= 0xF0 && first < 0xF5 ? 4
                                                            : 0;
  if (bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return bytes;
}

std::string Number(double value) {
  if (value < 10) return absl::StrFormat("%.2f", value);
  return value < 1e7 ? absl::StrFormat("%.0f", value) : absl::StrFormat("%.3g", value);
}

std::string LossText(const std::optional<double>& loss) {
  if (!loss) return "-";
  return std::isfinite(*loss) ? absl::StrFormat("%.4g", *loss) : "nan";
}

std::string BytesText(std::int64_t bytes) {
  if (bytes <= 0) return "-";
  double value = static_cast<double>(bytes) / 1024;
  for (const char unit : {'K', 'M', 'G'}) {
    if (value < 1000) return absl::StrFormat("%.*f%c", value < 10 ? 1 : 0, value, unit);
    value /= 1024;
  }
  return absl::StrFormat("%.1fT", value);
}

TopStyle StyleOf(TopHealth health) {
  switch (health) {
    case TopHealth::kHung:
    case TopHealth::kAway:
    case TopHealth::kLate:
      return TopStyle::kBad;
    case TopHealth::kSlow:
    case TopHealth::kWaits:
    case TopHealth::kStops:
      return TopStyle::kWarning;
    case TopHealth::kIdle:
    case TopHealth::kEnded:
      return TopStyle::kDim;
    case TopHealth::kRuns:
      break;
  }
  return TopStyle::kPlain;
}

// Puts cells side by side, and lines below each other, as far as there is room.
class Canvas {
 public:
  Canvas(ScreenSize size, bool utf8) : size_(size), utf8_(utf8) {}

  bool utf8() const { return utf8_; }
  int left() const { return size_.rows - static_cast<int>(lines_.size()); }

  void Line(bool reversed = false) {
    lines_.push_back({{}, reversed});
    at_ = 0;
  }
  // `width` 0: as wide as it is; numbers stand at the right end of theirs.
  void Put(const std::string& text, TopStyle style = TopStyle::kPlain, int width = 0,
           bool right = false) {
    const int room = std::max(0, size_.columns - at_);
    if (room > 0) {
      std::string fitted = Fit(text, width > 0 ? std::min(width, room) : room, utf8_);
      const int length = Length(fitted);
      const int column = at_ + (right ? std::max(0, width - length) : 0);
      if (length > 0 && column + length <= size_.columns)
        lines_.back().cells.push_back({column, std::move(fitted), style});
      at_ += width > 0 ? width : length;
    }
  }
  void Skip(int columns) { at_ += columns; }
  void CutTo(int rows) {
    const auto most = static_cast<std::size_t>(std::max(0, rows));
    if (lines_.size() > most) lines_.resize(most);
  }
  std::vector<TopLine> Take() { return std::move(lines_); }

 private:
  static int Length(const std::string& text) {
    return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }

  const ScreenSize size_;
  const bool utf8_;
  int at_ = 0;
  std::vector<TopLine> lines_;
};

// Step, rate and loss of the run, as numbers and as they were.
void DrawFigures(const Top& top, Canvas& canvas) {
  const RunStatus& run = *top.run();
  canvas.Line();
  if (!run.progress) return canvas.Put("no progress is reported", TopStyle::kDim);
  const auto put = [&](const char* name, const std::string& value) {
    canvas.Put(name, TopStyle::kDim);
    canvas.Put(absl::StrCat(" ", value, "  "), TopStyle::kStrong);
  };
  const Progress& progress = *run.progress;
  if (progress.step >= 0) put("step", absl::StrCat(progress.step));
  if (progress.epoch >= 0) put("epoch", absl::StrCat(progress.epoch));
  if (progress.rate > 0) {
    const std::string unit = progress.rate_unit.empty() ? "steps" : progress.rate_unit;
    put("rate", absl::StrCat(Number(progress.rate), " ", unit, "/s"));
    canvas.Put(Sparkline(top.rates(), kSparkWidth, canvas.utf8()), TopStyle::kGood);
    canvas.Skip(2);
  }
  if (run.loss) {
    put("loss", LossText(run.loss));
    canvas.Put(Sparkline(top.losses(), kSparkWidth, canvas.utf8()), TopStyle::kWarning);
  }
}

void DrawGoodput(const RunStatus& run, Canvas& canvas) {
  const std::string words = GoodputText(run.time);
  if (words.empty()) return;
  const double share = static_cast<double>(run.time[TimeClass::kTraining].count()) /
                       static_cast<double>(run.time.Sum().count());
  canvas.Line();
  canvas.Put("goodput ", TopStyle::kDim);
  canvas.Put(Bar(share, kBarWidth, canvas.utf8()), TopStyle::kGood);
  canvas.Put(absl::StrCat(" ", words));
}

void DrawSummary(const Top& top, const std::string& heading, Canvas& canvas) {
  canvas.Line(true);
  canvas.Put(heading, TopStyle::kStrong);
  if (top.run_count() > 1) canvas.Put(absl::StrCat("  ", top.run_count(), " runs: Tab"));
  if (!top.trouble().empty()) {
    canvas.Line();
    canvas.Put(top.trouble(), TopStyle::kBad);
  }
  if (top.run() == nullptr) {
    canvas.Line();
    canvas.Put(top.trouble().empty() ? "no run" : "");
    return;
  }
  const RunStatus& run = *top.run();
  const std::vector<std::string> words = RunLines(run, false);
  canvas.Line();
  canvas.Put(words.front(), TopStyle::kStrong);
  DrawFigures(top, canvas);
  DrawGoodput(run, canvas);
  for (std::size_t i = 1; i < std::min(words.size(), 1 + kTroublesShown); ++i) {
    canvas.Line();
    canvas.Put(words[i], TopStyle::kWarning);
  }
}

struct Column {
  const char* title;
  int width;
  bool right;
};
constexpr Column kColumns[] = {
    {"NODE", 5, false}, {"RANK", 9, false},  {"HOST", 16, false}, {"STATE", 11, false},
    {"STEP", 9, true},  {"RATE", 9, true},   {"LOSS", 10, true},  {"MEMORY", 8, true},
    {"GPU", 8, true},   {"DOING", 0, false},
};

std::string RanksOf(const NodeStatus& node) {
  if (node.ranks == 0) return "-";
  if (node.ranks == 1) return absl::StrCat(node.rank_first);
  return absl::StrCat(node.rank_first, "-", node.rank_first + node.ranks - 1);
}

void DrawRow(const Top& top, TopRow row, bool selected, Canvas& canvas) {
  const NodeStatus& node = top.NodeOf(row);
  const RankReport report = top.ReportOf(row);
  const bool is_node = row.local_rank < 0;
  const std::string cells[] = {
      node.node_rank ? absl::StrCat(*node.node_rank) : "-",
      is_node ? RanksOf(node) : absl::StrCat("  ", node.rank_first + row.local_rank),
      node.host,
      StateText(top, row),
      report.step >= 0 ? absl::StrCat(report.step) : "-",
      report.rate > 0 ? Number(report.rate) : "-",
      LossText(report.loss),
      BytesText(report.memory),
      BytesText(report.gpu_memory),
      report.section.empty() ? "-" : report.section};
  TopStyle style = StyleOf(top.HealthOf(row));
  if (style == TopStyle::kPlain && is_node) style = TopStyle::kStrong;
  canvas.Line(selected);
  for (std::size_t i = 0; i < std::size(kColumns); ++i) {
    const int width = kColumns[i].width;
    canvas.Put(cells[i], style, width > 0 ? width - 1 : 0, kColumns[i].right);
    canvas.Skip(1);
  }
}

void DrawTable(const Top& top, int rows, Canvas& canvas) {
  canvas.Line(true);
  for (const Column& column : kColumns) {
    canvas.Put(column.title, TopStyle::kStrong, column.width > 0 ? column.width - 1 : 0,
               column.right);
    canvas.Skip(1);
  }
  const auto page = static_cast<std::size_t>(rows);
  const std::size_t first = top.FirstRow(page);
  for (std::size_t i = first; i < first + page; ++i) {
    if (i < top.rows().size()) {
      DrawRow(top, top.rows()[i], i == top.selected(), canvas);
    } else {
      canvas.Line();
    }
  }
}

void DrawLines(const Top::Text& text, int rows, Canvas& canvas) {
  canvas.Line(true);
  canvas.Put(absl::StrCat(text.title, "  (", text.lines.size(), " lines; Esc: back)"),
             TopStyle::kStrong);
  const auto page = static_cast<std::size_t>(rows);
  const std::size_t last = text.lines.size() > page ? text.lines.size() - page : 0;
  const std::size_t first = text.follows ? last : std::min(text.scroll, last);
  for (std::size_t i = first; i < first + page; ++i) {
    canvas.Line();
    if (i < text.lines.size()) canvas.Put(text.lines[i]);
  }
}

void DrawEvents(const Top& top, Canvas& canvas) {
  canvas.Line(true);
  canvas.Put("EVENTS", TopStyle::kStrong);
  const std::size_t count = top.events().size();
  const std::size_t first = count > kEventsShown ? count - kEventsShown : 0;
  for (std::size_t i = first; i < first + kEventsShown; ++i) {
    canvas.Line();
    if (i < count) canvas.Put(top.events()[i]);
  }
}

void DrawFoot(const Top& top, Canvas& canvas) {
  canvas.Line();
  if (top.mode() == TopMode::kQuestion) return canvas.Put(top.question(), TopStyle::kWarning);
  if (top.mode() == TopMode::kFilter) return canvas.Put(absl::StrCat("/", top.filter(), "_"));
  if (!top.message().empty()) return canvas.Put(top.message(), TopStyle::kStrong);
  std::string words = absl::StrCat("j/k move  / filter  o order: ", NameOf(top.sort()),
                                   "  s stacks  l log  d drain  q quit");
  if (!top.filter().empty()) absl::StrAppend(&words, "  (only: ", top.filter(), ")");
  canvas.Put(words, TopStyle::kDim);
}

int EventRows(ScreenSize size) { return size.rows >= kRowsForEvents ? kEventsShown + 1 : 0; }

// Less the table's heading and the last line.
int RowsLeft(const Canvas& canvas, ScreenSize size) { return canvas.left() - EventRows(size) - 2; }

}  // namespace

std::string Fit(const std::string& text, int width, bool utf8) {
  const std::string clean = Printable(text);
  absl::string_view rest = clean;
  std::string fitted;
  for (int i = 0; i < width && !rest.empty(); ++i) {
    const std::size_t bytes = CharacterBytes(rest);
    if (rest[0] == '\t') {
      fitted += ' ';
    } else if (bytes == 0 || (bytes > 1 && !utf8)) {
      fitted += '?';
    } else {
      absl::StrAppend(&fitted, rest.substr(0, bytes));
    }
    rest.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return fitted;
}

std::string Sparkline(const std::deque<double>& values, std::size_t width, bool utf8) {
  const auto shown = static_cast<std::ptrdiff_t>(std::min(values.size(), width));
  const auto first = values.end() - shown;
  if (shown == 0) return "";
  const auto [least, greatest] = std::minmax_element(first, values.end());
  std::string line;
  for (auto value = first; value != values.end(); ++value) {
    const double range = *greatest - *least;
    const double share = range > 0 ? (*value - *least) / range : 0;
    const auto level =
        static_cast<std::size_t>(std::lround(share * static_cast<double>(kSparks.size() - 1)));
    if (utf8) {
      line += kSparks[level];
    } else {
      line += kAsciiSparks[level];
    }
  }
  return line;
}

std::string Bar(double share, std::size_t width, bool utf8) {
  const auto full = static_cast<std::size_t>(
      std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) {
    bar += i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
  }
  return bar;
}

std::vector<TopLine> DrawTop(const Top& top, const std::string& heading, ScreenSize size,
                             bool utf8) {
  Canvas canvas(size, utf8);
  DrawSummary(top, heading, canvas);
  if (const int rows = RowsLeft(canvas, size); rows > 0) {
    if (top.mode() == TopMode::kText) {
      DrawLines(top.text(), rows, canvas);
    } else {
      DrawTable(top, rows, canvas);
    }
    if (EventRows(size) > 0) DrawEvents(top, canvas);
  }
  canvas.CutTo(size.rows - 1);
  DrawFoot(top, canvas);
  return canvas.Take();
}

std::size_t PageOf(const Top& top, ScreenSize size) {
  Canvas canvas(size, false);
  DrawSummary(top, "", canvas);
  return static_cast<std::size_t>(std::max(1, RowsLeft(canvas, size)));
}

}  // namespace ddprun

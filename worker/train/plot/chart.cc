// SPDX-License-Identifier: Apache-2.0
#include "worker/train/plot/chart.h"

#include <cairo-svg.h>
#include <cairo.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>

#include "proto/output_file.h"
#include "worker/train/plot/axis.h"

namespace ddprun {
namespace {

struct Color {
  double red, green, blue;
};

// Tableau's ten colours, which most people can distinguish.
constexpr std::array<Color, 10> kColors = {{{0.122, 0.467, 0.706},
                                            {1.000, 0.498, 0.055},
                                            {0.173, 0.627, 0.173},
                                            {0.839, 0.153, 0.157},
                                            {0.580, 0.404, 0.741},
                                            {0.549, 0.337, 0.294},
                                            {0.890, 0.467, 0.761},
                                            {0.498, 0.498, 0.498},
                                            {0.737, 0.741, 0.133},
                                            {0.090, 0.745, 0.812}}};
constexpr Color kInk{0.20, 0.22, 0.25};
constexpr Color kGrid{0.90, 0.91, 0.92};
constexpr double kFontSize = 13;
constexpr double kTitleSize = 15;
constexpr double kMargin = 16;
constexpr double kLeftRoom = 56;    // for the ticks' numbers
constexpr double kRightRoom = 24;   // for half of the last number
constexpr double kBottomRoom = 48;  // for numbers and the axis' title
constexpr double kTopRoom = 34;     // for the panel's title
constexpr double kLegendRow = 22;
constexpr double kPale = 0.28;

struct Box {
  double left, top, right, bottom;
};

// Maps values to positions on the page.
struct Scale {
  Axis x, y;
  Box box;

  double X(double value) const {
    return box.left + (value - x.least) / (x.most - x.least) * (box.right - box.left);
  }
  double Y(double value) const {
    return box.bottom - (value - y.least) / (y.most - y.least) * (box.bottom - box.top);
  }
};

void SetColor(cairo_t* cr, const Color& color, double opacity = 1) {
  cairo_set_source_rgba(cr, color.red, color.green, color.blue, opacity);
}

enum class Anchor { kLeft, kMiddle, kRight };

void Text(cairo_t* cr, const std::string& text, double x, double y, Anchor anchor,
          double size = kFontSize, bool bold = false) {
  cairo_select_font_face(cr, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(cr, size);
  cairo_text_extents_t extents;
  cairo_text_extents(cr, text.c_str(), &extents);
  const double share = anchor == Anchor::kLeft ? 0 : anchor == Anchor::kMiddle ? 0.5 : 1;
  cairo_move_to(cr, x - share * extents.x_advance, y);
  cairo_show_text(cr, text.c_str());
}

double TextWidth(cairo_t* cr, const std::string& text) {
  cairo_select_font_face(cr, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(cr, kFontSize);
  cairo_text_extents_t extents;
  cairo_text_extents(cr, text.c_str(), &extents);
  return extents.x_advance;
}

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void Hold(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

// The same for all panels, so that they can be compared.
Axis MakeXAxis(const std::vector<Panel>& panels) {
  Range range{.least = 0};
  for (const Panel& panel : panels) {
    for (const Curve& curve : panel.curves) {
      for (const auto& [x, y] : curve.points) range.Hold(x);
    }
  }
  return MakeAxis(range.least, range.most, 7, /*to_ticks=*/false);
}

Axis MakeYAxis(const Panel& panel) {
  Range range;
  for (const Curve& curve : panel.curves) {
    for (const auto& [x, y] : curve.points) range.Hold(y);
  }
  // The axis includes zero unless that would flatten the curves.
  if (range.least > 0 && range.least < 0.4 * range.most) range.least = 0;
  return MakeAxis(range.least, range.most, 6, /*to_ticks=*/true);
}

void DrawAxes(cairo_t* cr, const Scale& scale, const std::string& title,
              const std::string& x_title) {
  const Box& box = scale.box;
  cairo_set_line_width(cr, 1);
  for (const double tick : scale.y.ticks) {
    const double y = std::round(scale.Y(tick)) + 0.5;
    SetColor(cr, kGrid);
    cairo_move_to(cr, box.left, y);
    cairo_line_to(cr, box.right, y);
    cairo_stroke(cr);
    SetColor(cr, kInk);
    Text(cr, TickText(tick, scale.y.digits), box.left - 8, y + 4.5, Anchor::kRight);
  }
  for (const double tick : scale.x.ticks) {
    const double x = std::round(scale.X(tick)) + 0.5;
    SetColor(cr, kInk);
    cairo_move_to(cr, x, box.bottom);
    cairo_line_to(cr, x, box.bottom + 5);
    cairo_stroke(cr);
    Text(cr, TickText(tick, scale.x.digits), x, box.bottom + 20, Anchor::kMiddle);
  }
  cairo_move_to(cr, box.left, std::round(box.bottom) + 0.5);
  cairo_line_to(cr, box.right, std::round(box.bottom) + 0.5);
  cairo_stroke(cr);
  Text(cr, x_title, (box.left + box.right) / 2, box.bottom + 40, Anchor::kMiddle);
  Text(cr, title, box.left, box.top - 14, Anchor::kLeft, kTitleSize, /*bold=*/true);
}

void Stroke(cairo_t* cr, const Scale& scale, const Points& points) {
  cairo_new_path(cr);
  for (const auto& [x, y] : points) cairo_line_to(cr, scale.X(x), scale.Y(y));
  // A single point would leave no trace.
  if (points.size() == 1)
    cairo_line_to(cr, scale.X(points[0].first) + 0.1, scale.Y(points[0].second));
  cairo_stroke(cr);
}

void DrawCurve(cairo_t* cr, const Scale& scale, const Curve& curve) {
  const Color& color = kColors[curve.run % kColors.size()];
  static constexpr double kDashes[] = {7, 4};
  cairo_set_dash(cr, kDashes, curve.test ? 2 : 0, 0);
  SetColor(cr, color, curve.smooth.empty() ? 1 : kPale);
  cairo_set_line_width(cr, curve.smooth.empty() ? 2 : 1.2);
  Stroke(cr, scale, curve.points);
  cairo_set_dash(cr, nullptr, 0, 0);
  SetColor(cr, color);
  cairo_set_line_width(cr, 2);
  if (!curve.smooth.empty()) Stroke(cr, scale, curve.smooth);
  if (!curve.test) return;
  for (const auto& [x, y] : curve.points) {
    cairo_arc(cr, scale.X(x), scale.Y(y), 3.2, 0, 2 * 3.14159265358979);
    cairo_fill(cr);
  }
}

void DrawLine(cairo_t* cr, double x, double y, bool dashed) {
  static constexpr double kDashes[] = {7, 4};
  cairo_set_dash(cr, kDashes, dashed ? 2 : 0, 0);
  cairo_set_line_width(cr, 2.5);
  cairo_move_to(cr, x, y - 4.5);
  cairo_line_to(cr, x + 26, y - 4.5);
  cairo_stroke(cr);
  cairo_set_dash(cr, nullptr, 0, 0);
}

// Runs by colour, then the meaning of a dashed line; in several rows if one is too narrow. Returns
// the bottom of the last row.
double Legend(cairo_t* cr, const std::vector<std::string>& names, int width) {
  double x = kMargin + kLeftRoom;
  double y = kMargin + kFontSize;
  const auto entry = [&](const std::string& text, const Color& color, bool dashed) {
    const double room = 34 + TextWidth(cr, text) + 22;
    if (x + room > width - kMargin && x > kMargin + kLeftRoom) {
      x = kMargin + kLeftRoom;
      y += kLegendRow;
    }
    SetColor(cr, color);
    DrawLine(cr, x, y, dashed);
    SetColor(cr, kInk);
    Text(cr, text, x + 34, y, Anchor::kLeft);
    x += room;
  };
  for (std::size_t i = 0; i < names.size(); ++i)
    entry(names[i], kColors[i % kColors.size()], false);
  entry("training", kInk, false);
  entry("test", kInk, true);
  return y - kFontSize + kLegendRow;
}

constexpr double kCellFontSize = 10;
// Names beside a matrix whose cells are lower than a line would lie upon each other.
constexpr double kNameHeight = kFontSize + 1;

// The first characters of a name, never half of one in UTF-8.
std::string Beginning(const std::string& name) {
  constexpr std::size_t kBytesMax = 14;
  std::size_t size = std::min(kBytesMax, name.size());
  while (size < name.size() && (static_cast<unsigned char>(name[size]) & 0xC0) == 0x80) --size;
  return name.substr(0, size);
}

void TurnedText(cairo_t* cr, const std::string& text, double x, double y) {
  cairo_save(cr);
  cairo_translate(cr, x, y);
  cairo_rotate(cr, -3.14159265358979 / 2);
  Text(cr, text, 0, 0, Anchor::kRight);
  cairo_restore(cr);
}

void DrawCells(cairo_t* cr, const Confusion& confusion, const Box& box, double cell) {
  double most = 0;
  for (const auto& row : confusion.counts)
    most = std::max(most, *std::max_element(row.begin(), row.end()));
  const double text_width = TextWidth(cr, TickText(most, 0)) * kCellFontSize / kFontSize;
  for (std::size_t row = 0; row < confusion.counts.size(); ++row) {
    double images = 0;
    for (const double count : confusion.counts[row]) images += count;
    for (std::size_t column = 0; column < confusion.counts.size(); ++column) {
      const double count = confusion.counts[row][column];
      if (!(count > 0)) continue;
      const double left = box.left + static_cast<double>(column) * cell;
      const double top = box.top + static_cast<double>(row) * cell;
      SetColor(cr, kColors[0], count / images);
      cairo_rectangle(cr, left, top, cell, cell);
      cairo_fill(cr);
      if (cell < text_width + 2) continue;
      SetColor(cr, count > images / 2 ? Color{1, 1, 1} : kInk);
      Text(cr, TickText(count, 0), left + cell / 2, top + cell / 2 + 3.5, Anchor::kMiddle,
           kCellFontSize);
    }
  }
}

// In the box, with its classes' names at the left and below if there is room for them.
void DrawConfusion(cairo_t* cr, const Confusion& confusion, Box box) {
  const auto classes = static_cast<double>(confusion.names.size());
  double room = 0;
  for (const std::string& name : confusion.names)
    room = std::max(room, TextWidth(cr, Beginning(name)) + 8);
  // There is a line for the numbers of an axis below the box.
  const auto cell_beside = [&](double names) {
    return std::min(box.right - box.left - names,
                    box.bottom - box.top - std::max(0.0, names - 28)) /
           classes;
  };
  const bool has_names = cell_beside(room) >= kNameHeight;
  const double cell = cell_beside(has_names ? room : 0);
  if (has_names) box.left += room;
  box.right = box.left + classes * cell;
  box.bottom = box.top + classes * cell;
  DrawCells(cr, confusion, box, cell);
  SetColor(cr, kInk);
  cairo_set_line_width(cr, 1);
  cairo_rectangle(cr, box.left, box.top, box.right - box.left, box.bottom - box.top);
  cairo_stroke(cr);
  const double title_left = has_names ? box.left - room : box.left;
  Text(cr, confusion.title, title_left, box.top - 14, Anchor::kLeft, kTitleSize, /*bold=*/true);
  for (std::size_t i = 0; has_names && i < confusion.names.size(); ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * cell + 4.5;
    Text(cr, Beginning(confusion.names[i]), box.left - 6, box.top + middle, Anchor::kRight);
    TurnedText(cr, Beginning(confusion.names[i]), box.left + middle, box.bottom + 6);
  }
  Text(cr, "predicted class", (box.left + box.right) / 2, box.bottom + 16 + (has_names ? room : 0),
       Anchor::kMiddle);
}

void Draw(cairo_t* cr, const std::vector<Panel>& panels, const std::vector<std::string>& names,
          const std::optional<Confusion>& confusion, const ChartOptions& options) {
  cairo_set_source_rgb(cr, 1, 1, 1);
  cairo_paint(cr);
  cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
  const double top = Legend(cr, names, options.width);
  const Axis x = MakeXAxis(panels);
  const double width =
      (options.width - kMargin) / static_cast<double>(panels.size() + (confusion ? 1 : 0));
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double left = kMargin + static_cast<double>(i) * width;
    const Scale scale{.x = x,
                      .y = MakeYAxis(panels[i]),
                      .box = {.left = left + kLeftRoom,
                              .top = top + kTopRoom,
                              .right = left + width - kRightRoom,
                              .bottom = options.height - kBottomRoom}};
    DrawAxes(cr, scale, panels[i].title, options.x_title);
    for (const Curve& curve : panels[i].curves) DrawCurve(cr, scale, curve);
  }
  if (!confusion) return;
  DrawConfusion(cr, *confusion,
                {.left = options.width - width + kRightRoom,
                 .top = top + kTopRoom,
                 .right = options.width - kRightRoom,
                 .bottom = options.height - kBottomRoom});
}

void Require(cairo_status_t status, const std::string& file) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  throw std::runtime_error("cannot draw " + file + ": " + cairo_status_to_string(status) +
                           "; choose another --width and --height");
}

cairo_status_t Append(void* picture, const unsigned char* data, unsigned int size) {
  static_cast<std::string*>(picture)->append(reinterpret_cast<const char*>(data), size);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

void DrawChart(const std::vector<Panel>& panels, const std::vector<std::string>& run_names,
               const std::optional<Confusion>& confusion, const ChartOptions& options) {
  const bool svg = std::filesystem::path(options.file).extension() == ".svg";
  std::string picture;
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      svg ? cairo_svg_surface_create_for_stream(Append, &picture, options.width, options.height)
          : cairo_image_surface_create(CAIRO_FORMAT_RGB24, options.width, options.height),
      cairo_surface_destroy);
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> cr(cairo_create(surface.get()), cairo_destroy);
  Require(cairo_status(cr.get()), options.file);
  Draw(cr.get(), panels, run_names, confusion, options);
  Require(cairo_status(cr.get()), options.file);
  if (!svg)
    Require(cairo_surface_write_to_png_stream(surface.get(), Append, &picture), options.file);
  cairo_surface_finish(surface.get());
  Require(cairo_surface_status(surface.get()), options.file);
  // Cairo itself would wait for ever for the reader of a FIFO.
  constexpr mode_t kAsTheUmaskSays = 0666;
  const absl::Status status = WriteWholeFile(options.file, picture, kAsTheUmaskSays);
  if (!status.ok())
    throw std::runtime_error(std::string(status.message()) + "; choose another --output");
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// What `ddpctl top` shows: its state as lines of styled text, whatever the size of the screen.
// Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "launcher/top/top_state.h"

namespace ddprun {

struct ScreenSize {
  int columns = 80;
  int rows = 24;
};

enum class TopStyle { kPlain, kDim, kStrong, kGood, kWarning, kBad };

struct TopCell {
  int column = 0;
  std::string text;  // UTF-8, or ASCII where the terminal has no UTF-8; no control characters
  TopStyle style = TopStyle::kPlain;
};
struct TopLine {
  std::vector<TopCell> cells;  // from left to right
  bool reversed = false;       // all of it
};

// At most size.rows lines. `heading`: the first words of the first line.
std::vector<TopLine> DrawTop(const Top& top, const std::string& heading, ScreenSize size,
                             bool utf8);

// The rows of the table, or of a text, that DrawTop() shows.
std::size_t PageOf(const Top& top, ScreenSize size);

// The last `width` values between their least and their greatest.
std::string Sparkline(const std::deque<double>& values, std::size_t width, bool utf8);

// `share` of 1 as a bar of `width` characters.
std::string Bar(double share, std::size_t width, bool utf8);

// At most `width` characters of text from anywhere: what a terminal could not show is a '?'.
std::string Fit(const std::string& text, int width, bool utf8);

}  // namespace ddprun

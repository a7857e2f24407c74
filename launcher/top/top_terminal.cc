// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/top_terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/printable.h"

// Last, and without the macros for its functions, some of which are common words.
#define NCURSES_NOMACROS
#include <curses.h>

namespace ddprun {
namespace {

constexpr int kEscapeDelayMs = 25;  // for the rest of a key that begins with Escape
constexpr int kEscapeKey = 27;

std::terminate_handler terminate_before = nullptr;

[[noreturn]] void RestoreAndTerminate() {
  endwin();
  terminate_before();
  std::abort();
}

short PairOf(TopStyle style) {
  switch (style) {
    case TopStyle::kGood:
      return 1;
    case TopStyle::kWarning:
      return 2;
    case TopStyle::kBad:
      return 3;
    case TopStyle::kPlain:
    case TopStyle::kDim:
    case TopStyle::kStrong:
      break;
  }
  return 0;
}

// Without colours the bad and the strong are bold.
attr_t AttributesOf(TopStyle style, bool colors) {
  if (style == TopStyle::kDim) return A_DIM;
  if (style == TopStyle::kStrong || style == TopStyle::kBad) return A_BOLD;
  return style == TopStyle::kWarning && !colors ? A_UNDERLINE : A_NORMAL;
}

// Absent: a key that means nothing here.
std::optional<TopKey> ToKey(int code) {
  using Kind = TopKey::Kind;
  switch (code) {
    case KEY_UP:
      return TopKey{Kind::kUp};
    case KEY_DOWN:
      return TopKey{Kind::kDown};
    case KEY_PPAGE:
      return TopKey{Kind::kPageUp};
    case KEY_NPAGE:
      return TopKey{Kind::kPageDown};
    case KEY_HOME:
      return TopKey{Kind::kFirst};
    case KEY_END:
      return TopKey{Kind::kLast};
    case KEY_ENTER:
    case '\n':
    case '\r':
      return TopKey{Kind::kEnter};
    case KEY_BACKSPACE:
    case '\b':
    case 127:
      return TopKey{Kind::kErase};
    case kEscapeKey:
      return TopKey{Kind::kEscape};
    default:
      break;
  }
  if (code < 0 || code > 255) return std::nullopt;
  return TopKey{Kind::kCharacter, static_cast<char>(code)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TopTerminal>> TopTerminal::Open() {
  const char* const variable = std::getenv("TERM");
  const std::string name = variable != nullptr ? Printable(variable) : "";
  // Numbers keep their points.
  setlocale(LC_CTYPE, "");
  SCREEN* const screen = newterm(nullptr, stdout, stdin);
  if (screen == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("terminfo describes no terminal '", name,
                     "' (TERM) on this machine; install ncurses-base or ncurses-term, or set "
                     "TERM=xterm"));
  }
  const char* const moves = tigetstr("cup");
  if (moves == nullptr || moves == reinterpret_cast<const char*>(-1)) {
    endwin();
    delscreen(screen);
    return absl::UnimplementedError(
        absl::StrCat("a terminal of the kind '", name, "' (TERM) cannot move its cursor"));
  }
  return std::unique_ptr<TopTerminal>(new TopTerminal());
}

TopTerminal::TopTerminal() : utf8_(std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) {
  terminate_before = std::set_terminate(RestoreAndTerminate);
  cbreak();
  noecho();
  nonl();
  set_escdelay(kEscapeDelayMs);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  curs_set(0);
  colors_ = has_colors() && start_color() != ERR && use_default_colors() != ERR;
  if (!colors_) return;
  init_pair(PairOf(TopStyle::kGood), COLOR_GREEN, -1);
  init_pair(PairOf(TopStyle::kWarning), COLOR_YELLOW, -1);
  init_pair(PairOf(TopStyle::kBad), COLOR_RED, -1);
}

TopTerminal::~TopTerminal() {
  endwin();
  std::set_terminate(terminate_before);
}

ScreenSize TopTerminal::size() const { return {getmaxx(stdscr), getmaxy(stdscr)}; }

void TopTerminal::Draw(const std::vector<TopLine>& lines) {
  erase();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const int row = static_cast<int>(i);
    const attr_t all = lines[i].reversed ? A_REVERSE : A_NORMAL;
    attr_set(all, 0, nullptr);
    if (lines[i].reversed) mvhline(row, 0, static_cast<chtype>(' ') | A_REVERSE, getmaxx(stdscr));
    for (const TopCell& cell : lines[i].cells) {
      attr_set(all | AttributesOf(cell.style, colors_), colors_ ? PairOf(cell.style) : short{0},
               nullptr);
      mvaddstr(row, cell.column, cell.text.c_str());
    }
  }
  attr_set(A_NORMAL, 0, nullptr);
  refresh();
}

std::vector<TopKey> TopTerminal::TakeKeys() {
  std::vector<TopKey> keys;
  for (int code = getch(); code != ERR; code = getch()) {
    if (const std::optional<TopKey> key = ToKey(code)) keys.push_back(*key);
  }
  return keys;
}

void TopTerminal::Resize() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    resizeterm(size.ws_row, size.ws_col);
}

void TopTerminal::Suspend() {
  endwin();
  raise(SIGSTOP);
  refresh();
  Resize();
}

}  // namespace ddprun

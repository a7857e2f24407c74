// SPDX-License-Identifier: Apache-2.0
#include "proto/progress_message.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"

namespace ddprun {
namespace {

std::optional<std::int64_t> Count(absl::string_view text) {
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) return std::nullopt;
  return value;
}

std::optional<double> Rate(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

// One that is not finite is infinite here, so that two of them are equal.
std::optional<double> Loss(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
}

std::optional<double> Share(absl::string_view text) {
  const std::optional<double> value = Rate(text);
  return value && *value <= 1 ? value : std::nullopt;
}

std::string Name(absl::string_view text) {
  return std::string(text.substr(0, kProgressNameBytesMax));
}

// One word, for a line of words.
std::string Word(absl::string_view text) {
  std::string word(text.substr(0, kCollectiveNameBytesMax));
  for (char& c : word) {
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) c = '_';
  }
  return word.empty() ? "-" : word;
}

std::string Known(absl::string_view word) {
  return word == "-" ? "" : std::string(word.substr(0, kCollectiveNameBytesMax));
}

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

constexpr char kMovesOn[] = "-";

// NUMBER NAME BYTES TYPE GROUP.
std::optional<Collective> Waiting(absl::string_view text) {
  const std::vector<absl::string_view> words = Words(text);
  if (words.size() != 5 || !Count(words[0])) return std::nullopt;
  return Collective{.group = Known(words[4]),
                    .number = *Count(words[0]),
                    .name = Known(words[1]),
                    .bytes = Count(words[2]).value_or(-1),
                    .dtype = Known(words[3])};
}

// NUMBER NAME GROUP, or NUMBER NAME BYTES TYPE GROUP.
std::optional<Collective> Done(absl::string_view text) {
  const std::vector<absl::string_view> words = Words(text);
  if (words.size() == 5) return Waiting(text);
  if (words.size() != 3 || !Count(words[0])) return std::nullopt;
  return Collective{.group = Known(words[2]), .number = *Count(words[0]), .name = Known(words[1])};
}

// NUMBER NAME BYTES TYPE GROUP.
std::string ToText(const Collective& collective) {
  return absl::StrCat(collective.number, " ", Word(collective.name), " ",
                      collective.bytes < 0 ? "-" : absl::StrCat(collective.bytes), " ",
                      Word(collective.dtype), " ", Word(collective.group));
}

std::string ToText(const CollectivePlace& place) {
  std::string text =
      absl::StrCat("WAITS=", place.waits.has_value() ? ToText(*place.waits) : "", "\n");
  for (std::size_t i = 0; i < std::min(place.last.size(), kCollectivesDoneMax); ++i)
    absl::StrAppend(&text, "LAST=", ToText(place.last[i]), "\n");
  return text;
}

std::optional<TimeClass> Class(absl::string_view name) {
  for (std::size_t i = 0; i < kTimeClasses; ++i) {
    if (name == NameOf(static_cast<TimeClass>(i))) return static_cast<TimeClass>(i);
  }
  return std::nullopt;
}

std::string ToText(const RankTime& time) {
  std::string text;
  ForEachClass(time, [&text](TimeClass kind, double seconds) {
    if (seconds == 0) return;
    absl::StrAppend(&text, text.empty() ? "" : ",", NameOf(kind), " ",
                    absl::StrFormat("%.6f", seconds));
  });
  return text;
}

// CLASS SECONDS,... without the classes that this version does not know.
RankTime Times(absl::string_view text) {
  RankTime time;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = Words(part);
    if (words.size() != 2) continue;
    const std::optional<TimeClass> kind = Class(words[0]);
    const std::optional<double> seconds = Rate(words[1]);
    if (!kind || !seconds) continue;
    const double limit = std::chrono::duration<double>(RankTime::kMax).count();
    time[*kind] = std::chrono::round<RankTime::Time>(
        std::chrono::duration<double>(std::min(*seconds, limit)));
  }
  return time;
}

template <typename T>
void MergeOne(const std::optional<T>& later, std::optional<T>& field) {
  if (later.has_value()) field = later;
}

}  // namespace

std::string ToText(const ProgressMessage& message) {
  std::string text;
  const auto add = [&text](const char* key, const auto& value) {
    if (value.has_value()) absl::StrAppend(&text, key, "=", *value, "\n");
  };
  add("STEP", message.step);
  add("STEPS", message.steps);
  add("EPOCH", message.epoch);
  add("RATE", message.rate);
  add("UNIT", message.unit);
  add("LOSS", message.loss);
  add("ACCURACY", message.accuracy);
  add("GPU_MEMORY", message.gpu_memory);
  add("SECTION", message.section);
  if (message.times) absl::StrAppend(&text, "TIMES=", ToText(*message.times), "\n");
  if (message.doing) absl::StrAppend(&text, "DOING=", NameOf(*message.doing), "\n");
  if (message.can_be_kept) absl::StrAppend(&text, "KEEP=", *message.can_be_kept ? 1 : 0, "\n");
  add("SLOW", message.slow);
  add("DAMAGED", message.damaged);
  add("LEFT", message.left_round);
  add("SAVED", message.saved_notice);
  if (message.error)
    absl::StrAppend(&text, "ERROR=", CutText(OneLine(*message.error), kProgressErrorBytesMax),
                    "\n");
  if (message.hears_notices) absl::StrAppend(&text, "NOTICES=1\n");
  if (message.pauses) absl::StrAppend(&text, "WATCH=0\n");
  if (message.place.has_value()) text += ToText(*message.place);
  if (message.moves_on) absl::StrAppend(&text, "WAITS=", kMovesOn, "\n");
  return text;
}

ProgressMessage ParseProgress(std::string_view text) {
  ProgressMessage message;
  bool other_words = false;
  const absl::string_view whole(text.data(), text.size());
  for (const absl::string_view line : absl::StrSplit(whole, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == line.npos) continue;
    const absl::string_view key = line.substr(0, equals);
    const absl::string_view value = line.substr(equals + 1);
    if (key == "WAITS" || key == "LAST") {
      if (!message.place.has_value()) message.place.emplace();
    } else if (key == "NOTICES") {
      message.hears_notices = message.hears_notices || value == "1";
    } else {
      other_words = true;
    }
    if (key == "WAITS") {
      message.place->waits = Waiting(value);
      message.moves_on = value == kMovesOn;
    } else if (key == "LAST") {
      const std::optional<Collective> last = Done(value);
      if (last && message.place->last.size() < kCollectivesDoneMax)
        message.place->last.push_back(*last);
    } else if (key == "STEP") {
      MergeOne(Count(value), message.step);
    } else if (key == "STEPS") {
      MergeOne(Count(value), message.steps);
    } else if (key == "EPOCH") {
      MergeOne(Count(value), message.epoch);
    } else if (key == "RATE") {
      MergeOne(Rate(value), message.rate);
    } else if (key == "UNIT") {
      message.unit = Name(value);
    } else if (key == "LOSS") {
      MergeOne(Loss(value), message.loss);
    } else if (key == "ACCURACY") {
      MergeOne(Share(value), message.accuracy);
    } else if (key == "GPU_MEMORY") {
      MergeOne(Count(value), message.gpu_memory);
    } else if (key == "SECTION") {
      message.section = Name(value);
    } else if (key == "TIMES") {
      message.times = Times(value);
    } else if (key == "DOING") {
      MergeOne(Class(value), message.doing);
    } else if (key == "SLOW") {
      MergeOne(Rate(value), message.slow);
    } else if (key == "DAMAGED") {
      MergeOne(Count(value), message.damaged);
    } else if (key == "WATCH") {
      message.pauses = value == "0";
    } else if (key == "KEEP") {
      message.can_be_kept = value == "1";
    } else if (key == "LEFT") {
      std::uint64_t round = 0;
      if (absl::SimpleAtoi(value, &round)) message.left_round = round;
    } else if (key == "SAVED") {
      std::uint64_t number = 0;
      if (absl::SimpleAtoi(value, &number)) message.saved_notice = number;
    } else if (key == "ERROR") {
      message.error = std::string(value.substr(0, kProgressErrorBytesMax));
    }
  }
  const bool says_no_progress = message.place.has_value() || message.hears_notices;
  message.goes_on = other_words || !says_no_progress;
  if (message.moves_on) message.place.reset();
  return message;
}

void Merge(const ProgressMessage& later, ProgressMessage& message) {
  message.hears_notices = message.hears_notices || later.hears_notices;
  if (OnlyHears(later)) return;
  MergeOne(later.step, message.step);
  MergeOne(later.steps, message.steps);
  MergeOne(later.epoch, message.epoch);
  MergeOne(later.rate, message.rate);
  MergeOne(later.unit, message.unit);
  MergeOne(later.loss, message.loss);
  MergeOne(later.accuracy, message.accuracy);
  MergeOne(later.gpu_memory, message.gpu_memory);
  MergeOne(later.section, message.section);
  MergeOne(later.times, message.times);
  MergeOne(later.doing, message.doing);
  MergeOne(later.slow, message.slow);
  MergeOne(later.damaged, message.damaged);
  MergeOne(later.can_be_kept, message.can_be_kept);
  MergeOne(later.saved_notice, message.saved_notice);
  // One that left again has another reason, or none.
  if (later.left_round.has_value()) message.error = later.error;
  MergeOne(later.left_round, message.left_round);
  message.moves_on = later.moves_on || (message.moves_on && !later.place.has_value());
  if (later.pauses && !later.place.has_value() && !later.moves_on) {
    if (message.place.has_value()) message.place->waits.reset();
  } else {
    message.place = later.place;
  }
  if (later.goes_on) message.pauses = later.pauses;
  message.goes_on = message.goes_on || later.goes_on;
}

}  // namespace ddprun

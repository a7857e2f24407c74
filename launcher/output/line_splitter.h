// SPDX-License-Identifier: Apache-2.0
// Splits a worker's output into whole lines and progress segments. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace ddprun {

class LineSplitter {
 public:
  struct Sink {
    std::function<void(std::string_view line)> line;  // without its line end
    std::function<void(std::string_view segment)>
        progress;  // ended by '\r': the next one takes its place
  };

  LineSplitter(Sink sink, std::size_t line_bytes_max)
      : sink_(std::move(sink)), line_bytes_max_(line_bytes_max) {}

  // "\r\n" ends a line as "\n" does. A longer line is passed on in pieces of that size.
  void Append(std::string_view bytes);

  // The text of the line whose end has not come, such as a prompt or the state of a progress bar.
  std::string_view unfinished() const { return partial_; }
  // A return ends that text: it was passed on as progress.
  bool after_return() const { return after_return_; }

  // The output has ended: the rest without a line end is a line too.
  void Flush();

 private:
  void AppendText(std::string_view text);        // without a line end
  void AppendSegment(std::string_view segment);  // without a return
  void EndLine();

  const Sink sink_;
  const std::size_t line_bytes_max_;
  std::string partial_;
  bool after_return_ =
      false;  // the last byte was '\r': partial_ was shown as progress, and is a line if '\n' comes
};

}  // namespace ddprun

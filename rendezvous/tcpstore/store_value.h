// SPDX-License-Identifier: Apache-2.0
// A value of the store. Copies share its bytes: a value that was read a thousand times is in memory
// once, however many of the replies wait for their readers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace ddprun {

class StoreValue {
 public:
  StoreValue() = default;
  // As a string's: a value is used where a string is.
  StoreValue(std::string text)
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  StoreValue(const char* text) : StoreValue(std::string(text)) {}

  const std::string& text() const { return text_ == nullptr ? Empty() : *text_; }
  operator const std::string&() const { return text(); }
  std::size_t size() const { return text().size(); }
  bool empty() const { return text_ == nullptr; }
  // Equal for copies, which share their bytes. Null for an empty value.
  const void* bytes() const { return text_.get(); }

  friend bool operator==(const StoreValue& a, const StoreValue& b) {
    return a.text_ == b.text_ || a.text() == b.text();
  }

 private:
  static const std::string& Empty() {
    static const std::string empty;
    return empty;
  }

  std::shared_ptr<const std::string> text_;
};

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// Reads a Python pickle as plain data. Nothing in it is ever imported or called: a class or
// function that the pickle names stays a name, and a call of it stays a record of the call, which
// the caller of ParsePickle() may recognise or reject.
//
// Format: CPython's Lib/pickletools.py, the instructions of protocols 2 to 5 that torch.save,
// Python 2's cPickle and numpy write for containers, text, numbers, calls and persistent ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ddprun {

// Values in one pickle. A state dict has about 20 for each tensor.
inline constexpr std::size_t kPickleValuesMax = std::size_t{1} << 20;

struct PickleValue;

struct PickleNone {};
struct PickleList {
  std::vector<const PickleValue*> items;
};
struct PickleTuple {
  std::vector<const PickleValue*> items;
};
// A dict or a collections.OrderedDict, in the pickle's order; keys may repeat. Attributes that an
// OrderedDict has beside its items are dropped.
struct PickleDict {
  std::vector<std::pair<const PickleValue*, const PickleValue*>> items;
};
// A class or a function.
struct PickleGlobal {
  std::string_view module;
  std::string_view name;
};
// What calling `function` with `arguments` would give; `state` is null or what the result's
// __setstate__ would be given. Items that the pickle adds to such an object (a dict or a list of a
// class of its own) are dropped.
struct PickleCall {
  const PickleValue* function = nullptr;
  const PickleTuple* arguments = nullptr;
  const PickleValue* state = nullptr;
};
// An object that is stored outside the pickle.
struct PicklePersistentId {
  const PickleValue* id = nullptr;
};

struct PickleValue {
  // std::string_view: text and byte strings.
  std::variant<PickleNone, bool, std::int64_t, double, std::string_view, PickleList, PickleTuple,
               PickleDict, PickleGlobal, PickleCall, PicklePersistentId>
      value;

  template <class T>
  const T* As() const {
    return std::get_if<T>(&value);
  }
  bool IsGlobal(std::string_view module, std::string_view name) const {
    const auto* global = As<PickleGlobal>();
    return global != nullptr && global->module == module && global->name == name;
  }
};

// The pickle is damaged, too large, or has an instruction that is not known here: one sentence.
struct PickleError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Owns its values; a value may refer to others more than once, and to itself.
class Pickle {
 public:
  const PickleValue& root() const { return *root_; }
  // All values, the root among them.
  const std::deque<PickleValue>& values() const { return values_; }
  // The pickle's own length: others may follow it in the same bytes.
  std::size_t size() const { return size_; }

 private:
  friend class PickleParser;
  std::deque<PickleValue> values_;
  std::size_t size_ = 0;
  const PickleValue* root_ = nullptr;
};

// The values' text lies in `bytes`, which must outlive them. Takes time and memory proportional to
// `bytes`. Throws PickleError.
Pickle ParsePickle(std::string_view bytes);

}  // namespace ddprun

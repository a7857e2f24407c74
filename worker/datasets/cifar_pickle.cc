// SPDX-License-Identifier: Apache-2.0
#include "worker/datasets/cifar_pickle.h"

#include <ATen/Functions.h>

#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "worker/data/mapped_file.h"

namespace ddprun {
namespace {

constexpr int kProtocolMax = 5;
// Of numpy's array: version, shape, dtype, whether the first index runs fastest, bytes.
constexpr std::size_t kArrayState = 5;

// Values refer to each other by their place in one list, so that a deep nest costs no stack.
using Id = std::uint32_t;

struct Value {
  enum class Kind { kNone, kMark, kNumber, kText, kTuple, kList, kDict, kGlobal, kArray, kDtype };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;     // of a number or truth value; of a text its place in the file
  std::int64_t length = 0;     // of a text
  std::vector<Id> items = {};  // of containers; a dict's keys and values in turn; an array's state
};

class PickleReader {
 public:
  PickleReader(const std::string& path, const MappedFile& file, const std::string& next_move)
      : path_(path), file_(file), next_move_(next_move) {}

  // The value that the pickle is of.
  Id Read() {
    if (Byte() != 0x80 || Byte() > kProtocolMax) Fail("is not a pickle that Python 3 reads");
    while (!Step(Byte())) {
    }
    return Pop();
  }

  const Value& at(Id id) const { return values_[id]; }

  std::string_view Text(Id id) const {
    const Value& value = Expect(id, Value::Kind::kText, "a text");
    return {reinterpret_cast<const char*>(file_.data.get()) + value.number,
            static_cast<std::size_t>(value.length)};
  }

  const Value& Expect(Id id, Value::Kind kind, const char* what) const {
    if (at(id).kind != kind) Fail(std::string("has something else where ") + what + " belongs");
    return at(id);
  }

  std::optional<Id> Find(Id dict, std::string_view key) const {
    const std::vector<Id>& items = Expect(dict, Value::Kind::kDict, "a dict").items;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (at(items[i]).kind == Value::Kind::kText && Text(items[i]) == key) return items[i + 1];
    }
    return std::nullopt;
  }

  [[noreturn]] void Fail(const std::string& fact) const {
    throw DataError(path_ + ": " + fact + "; " + next_move_);
  }

 private:
  std::uint8_t Byte() {
    Require(1);
    return file_.data.get()[at_++];
  }

  std::int64_t Little(int bytes) {
    Require(bytes);
    std::uint64_t number = 0;
    for (int i = 0; i < bytes; ++i)
      number |= static_cast<std::uint64_t>(file_.data.get()[at_ + i]) << (8 * i);
    at_ += bytes;
    return static_cast<std::int64_t>(number);
  }

  void Require(std::int64_t bytes) const {
    if (bytes < 0 || bytes > file_.size - at_)
      Fail("ends in the middle of a value, it is cut off or damaged");
  }

  std::string Line() {
    const char* begin = reinterpret_cast<const char*>(file_.data.get()) + at_;
    const void* end = std::memchr(begin, '\n', static_cast<std::size_t>(file_.size - at_));
    if (end == nullptr) Fail("ends in the middle of a name, it is cut off or damaged");
    std::string line(begin, static_cast<const char*>(end));
    at_ += static_cast<std::int64_t>(line.size()) + 1;
    return line;
  }

  Id Add(Value value) {
    if (values_.size() >= kCifarPickleValuesMax)
      Fail("has more than " + std::to_string(kCifarPickleValuesMax) +
           " values, it is no CIFAR file");
    values_.push_back(std::move(value));
    return static_cast<Id>(values_.size() - 1);
  }
  void Push(Value value) { stack_.push_back(Add(std::move(value))); }
  void PushNumber(std::int64_t number) { Push({.kind = Value::Kind::kNumber, .number = number}); }

  void PushText(std::int64_t length) {
    Require(length);
    Push({.kind = Value::Kind::kText, .number = at_, .length = length});
    at_ += length;
  }

  Id Pop() {
    if (stack_.empty() || at(stack_.back()).kind == Value::Kind::kMark)
      Fail("is no whole pickle, it is damaged");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }

  Value& Top(Value::Kind kind, const char* what) {
    if (stack_.empty()) Fail("is no whole pickle, it is damaged");
    Expect(stack_.back(), kind, what);
    return values_[stack_.back()];
  }

  // What lies above the last mark, which goes as well.
  std::vector<Id> PopToMark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && at(stack_[begin - 1]).kind != Value::Kind::kMark) --begin;
    if (begin == 0) Fail("is no whole pickle, it is damaged");
    std::vector<Id> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }

  std::vector<Id> PopSome(std::size_t count) {
    std::vector<Id> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = Pop();
    return items;
  }

  void PushTuple(std::vector<Id> items) {
    Push({.kind = Value::Kind::kTuple, .items = std::move(items)});
  }

  void Extend(Value::Kind kind, const std::vector<Id>& items) {
    const bool dict = kind == Value::Kind::kDict;
    if (dict && items.size() % 2 != 0) Fail("is no whole pickle, it is damaged");
    std::vector<Id>& own = Top(kind, dict ? "a dict" : "a list").items;
    own.insert(own.end(), items.begin(), items.end());
  }

  void Memoize(std::int64_t key) {
    if (stack_.empty()) Fail("is no whole pickle, it is damaged");
    if (memo_.size() >= kCifarPickleValuesMax)
      Fail("remembers too many values, it is no CIFAR file");
    memo_[key] = stack_.back();
  }

  void Recall(std::int64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) Fail("is no whole pickle, it is damaged");
    stack_.push_back(found->second);
    if (stack_.size() > kCifarPickleValuesMax) Fail("has too many values, it is no CIFAR file");
  }

  // Only a name: what it stands for is looked up nowhere.
  void PushGlobal(const std::string& module, const std::string& name) {
    const bool numpy = module == "numpy.core.multiarray" || module == "numpy._core.multiarray";
    Value value{.kind = Value::Kind::kGlobal};
    if (numpy && name == "_reconstruct")
      value.number = static_cast<std::int64_t>(Value::Kind::kArray);
    else if (module == "numpy" && name == "dtype")
      value.number = static_cast<std::int64_t>(Value::Kind::kDtype);
    else if (module != "numpy" || name != "ndarray")
      Fail("names " + module.substr(0, kNameShown) + "." + name.substr(0, kNameShown) +
           ", which no CIFAR file does, and nothing of it was run");
    Push(std::move(value));
  }

  void Reduce() {
    const Id arguments = Pop();
    const Value& function = Expect(Pop(), Value::Kind::kGlobal, "a function");
    const auto kind = static_cast<Value::Kind>(function.number);
    const auto& given = Expect(arguments, Value::Kind::kTuple, "a tuple").items;
    if (kind == Value::Kind::kDtype) {
      const std::string_view type = given.empty() ? std::string_view() : Text(given[0]);
      if (type != "u1" && type != "|u1") Fail("has an array of other numbers than bytes");
    } else if (kind != Value::Kind::kArray) {
      Fail("calls what no CIFAR file does, and nothing of it was run");
    }
    Push({.kind = kind});
  }

  // numpy's arrays and dtypes come as an empty one and a state to put into it.
  void Build() {
    const Id state = Pop();
    if (stack_.empty()) Fail("is no whole pickle, it is damaged");
    Value& object = values_[stack_.back()];
    if (object.kind == Value::Kind::kDtype) return;
    if (object.kind != Value::Kind::kArray) Fail("has a state for something that has none");
    const auto& items = Expect(state, Value::Kind::kTuple, "a tuple").items;
    if (items.size() != kArrayState) Fail("has an array whose state is none");
    object.items = items;
  }

  // One operation of Python's pickletools; true: it was the last.
  bool Step(std::uint8_t code) {
    if (StepOfTexts(code) || StepOfContainers(code)) return false;
    switch (code) {
      case 'N':
        Push({});
        return false;
      case 0x88:  // True
      case 0x89:
        PushNumber(code == 0x88 ? 1 : 0);
        return false;
      case 'K':
        PushNumber(Little(1));
        return false;
      case 'M':
        PushNumber(Little(2));
        return false;
      case 'J':
        PushNumber(static_cast<std::int32_t>(Little(4)));
        return false;
      case 'q':
        Memoize(Little(1));
        return false;
      case 'r':
        Memoize(Little(4));
        return false;
      case 0x94:
        Memoize(static_cast<std::int64_t>(memo_.size()));
        return false;
      case 'h':
        Recall(Little(1));
        return false;
      case 'j':
        Recall(Little(4));
        return false;
      case 'c': {
        const std::string module = Line();
        PushGlobal(module, Line());
        return false;
      }
      case 0x93: {
        const std::string name(Text(Pop()));
        PushGlobal(std::string(Text(Pop())), name);
        return false;
      }
      case 'R':
        Reduce();
        return false;
      case 'b':
        Build();
        return false;
      case 0x95:  // a frame's length
        Little(8);
        return false;
      case '.':
        return true;
      default:
        Fail("has the pickle operation " + std::to_string(code) +
             ", which no CIFAR file has, and nothing of it was run");
    }
  }

  bool StepOfTexts(std::uint8_t code) {
    switch (code) {
      case 'U':
      case 'C':
      case 0x8c:
        PushText(Little(1));
        return true;
      case 'T':
      case 'B':
      case 'X':
        PushText(Little(4));
        return true;
      case 0x8e:
        PushText(Little(8));
        return true;
      default:
        return false;
    }
  }

  bool StepOfContainers(std::uint8_t code) {
    switch (code) {
      case '(':
        Push({.kind = Value::Kind::kMark});
        return true;
      case ')':
        PushTuple({});
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        PushTuple(PopSome(code - 0x84u));
        return true;
      case 't':
        PushTuple(PopToMark());
        return true;
      case ']':
        Push({.kind = Value::Kind::kList});
        return true;
      case 'a':
        Extend(Value::Kind::kList, PopSome(1));
        return true;
      case 'e':
        Extend(Value::Kind::kList, PopToMark());
        return true;
      case '}':
        Push({.kind = Value::Kind::kDict});
        return true;
      case 's':
        Extend(Value::Kind::kDict, PopSome(2));
        return true;
      case 'u':
        Extend(Value::Kind::kDict, PopToMark());
        return true;
      default:
        return false;
    }
  }

  static constexpr std::size_t kNameShown = 80;

  const std::string& path_;
  const MappedFile& file_;
  const std::string& next_move_;
  std::int64_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Id> stack_;
  std::unordered_map<std::int64_t, Id> memo_;
};

at::Tensor Pixels(const PickleReader& reader, Id array, const MappedFile& file) {
  const auto& state = reader.Expect(array, Value::Kind::kArray, "an array").items;
  if (state.size() != kArrayState) reader.Fail("has an array without a state");
  const auto& shape = reader.Expect(state[1], Value::Kind::kTuple, "a shape").items;
  reader.Expect(state[2], Value::Kind::kDtype, "a dtype");
  const Value& bytes = reader.Expect(state[4], Value::Kind::kText, "the array's bytes");
  if (shape.size() != 2) reader.Fail("has an array of other than two dimensions");
  const std::int64_t count = reader.Expect(shape[0], Value::Kind::kNumber, "a number").number;
  const std::int64_t width = reader.Expect(shape[1], Value::Kind::kNumber, "a number").number;
  if (width != kCifarImageBytes || count < 1 || bytes.length % kCifarImageBytes != 0 ||
      bytes.length / kCifarImageBytes != count)
    reader.Fail("has " + std::to_string(bytes.length) + " bytes of pixels for " +
                std::to_string(count) + " images of " + std::to_string(width) + " bytes");
  const bool first_is_fastest =
      reader.Expect(state[3], Value::Kind::kNumber, "a truth value").number != 0;
  const at::Tensor rows = first_is_fastest
                              ? file.View(bytes.number, {count, width}, {1, count}).contiguous()
                              : file.View(bytes.number, {count, width}, {width, 1});
  return rows.view({count, 3, kCifarSide, kCifarSide});
}

}  // namespace

LabelledImages MapCifarPickle(const std::string& path, const std::string& labels_key,
                              const std::string& next_move) {
  const MappedFile file = MapFile(path, next_move);
  PickleReader reader(path, file, next_move);
  const Id dict = reader.Read();
  const auto data = reader.Find(dict, "data");
  const auto labels = reader.Find(dict, labels_key);
  if (!data || !labels) reader.Fail("has no data or no " + labels_key + ", it is no CIFAR file");
  LabelledImages set{.images = Pixels(reader, *data, file)};
  const auto& list = reader.Expect(*labels, Value::Kind::kList, "a list of labels").items;
  if (static_cast<std::int64_t>(list.size()) != set.images.size(0))
    reader.Fail("has " + std::to_string(list.size()) + " labels for " +
                std::to_string(set.images.size(0)) + " images");
  set.labels = at::empty({set.images.size(0)}, at::kLong);
  auto* label = set.labels.data_ptr<std::int64_t>();
  for (const Id id : list) *label++ = reader.Expect(id, Value::Kind::kNumber, "a label").number;
  return set;
}

std::vector<std::string> ReadPickledNames(const std::string& path, const std::string& key,
                                          const std::string& next_move) {
  const MappedFile file = MapFile(path, next_move);
  PickleReader reader(path, file, next_move);
  const Id dict = reader.Read();
  const auto found = reader.Find(dict, key);
  if (!found) reader.Fail("has no " + key);
  std::vector<std::string> names;
  for (const Id id : reader.Expect(*found, Value::Kind::kList, "a list of names").items)
    names.emplace_back(reader.Text(id));
  return names;
}

}  // namespace ddprun

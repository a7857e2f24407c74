// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/pickle.h"

#include <bit>
#include <string>
#include <unordered_map>

namespace ddprun {
namespace {

[[noreturn]] void Cut() { throw PickleError("the pickle ends in the middle of an instruction"); }
[[noreturn]] void Malformed() {
  throw PickleError("the pickle's instructions do not fit together");
}

// Integers beyond 64 bits have no use in what is read here.
constexpr std::size_t kLongBytesMax = 8;

class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  std::string_view Take(std::size_t size) {
    if (size > bytes_.size() - at_) Cut();
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  std::size_t taken() const { return at_; }

  std::uint8_t Byte() { return static_cast<std::uint8_t>(Take(1).front()); }

  // Little-endian, of 1 to 8 bytes.
  std::uint64_t Number(std::size_t size) {
    std::uint64_t number = 0;
    const std::string_view bytes = Take(size);
    for (std::size_t i = 0; i < size; ++i)
      number |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
    return number;
  }

  // Little-endian, two's complement, of 0 to 8 bytes.
  std::int64_t SignedNumber(std::size_t size) {
    if (size == 0) return 0;
    const unsigned unused = 64 - 8 * static_cast<unsigned>(size);
    return static_cast<std::int64_t>(Number(size) << unused) >> unused;
  }

  double BigEndianDouble() {
    std::uint64_t bits = 0;
    for (const char byte : Take(8)) bits = bits << 8 | static_cast<std::uint8_t>(byte);
    return std::bit_cast<double>(bits);
  }

  std::string_view Line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) Cut();
    const std::string_view line = Take(end - at_);
    ++at_;
    return line;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace

// The pickle machine: a stack, a memo, and marks in the stack where a group of values begins.
class PickleParser {
 public:
  explicit PickleParser(std::string_view bytes) : input_(bytes) {}

  Pickle Parse() {
    while (Step(input_.Byte())) {
    }
    if (stack_.size() != 1 || !marks_.empty()) Malformed();
    pickle_.root_ = stack_.front();
    pickle_.size_ = input_.taken();
    return std::move(pickle_);
  }

 private:
  using Values = std::vector<const PickleValue*>;

  // False at the pickle's end.
  bool Step(std::uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        input_.Byte();
        return true;
      case '.':  // STOP
        return false;
      case '(':  // MARK
        if (marks_.size() == kPickleValuesMax) Malformed();
        marks_.push_back(stack_.size());
        return true;
      case 'c':  // GLOBAL
      {
        const std::string_view module = input_.Line();
        Push(PickleGlobal{module, input_.Line()});
        return true;
      }
      case 0x93:  // STACK_GLOBAL
        StackGlobal();
        return true;
      case 0x95:  // FRAME
        input_.Take(8);
        return true;
      case 'R':   // REDUCE
      case 0x81:  // NEWOBJ
        Call();
        return true;
      case 'b':  // BUILD
        Build();
        return true;
      case 'Q':  // BINPERSID
        Push(PicklePersistentId{Pop()});
        return true;
      default:
        if (!Scalar(code) && !Container(code) && !Memo(code)) {
          throw PickleError("the pickle has instruction " + std::to_string(code) +
                            ", which is not read here");
        }
        return true;
    }
  }

  bool Scalar(std::uint8_t code) {
    switch (code) {
      case 'N':  // NONE
        Push(PickleNone{});
        return true;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        Push(code == 0x88);
        return true;
      case 'K':  // BININT1
        Push(static_cast<std::int64_t>(input_.Number(1)));
        return true;
      case 'M':  // BININT2
        Push(static_cast<std::int64_t>(input_.Number(2)));
        return true;
      case 'J':  // BININT
        Push(input_.SignedNumber(4));
        return true;
      case 0x8a:  // LONG1
      {
        const std::size_t size = input_.Byte();
        if (size > kLongBytesMax) throw PickleError("the pickle has an integer beyond 64 bits");
        Push(input_.SignedNumber(size));
        return true;
      }
      case 'G':  // BINFLOAT
        Push(input_.BigEndianDouble());
        return true;
      case 0x8e:  // BINBYTES8
        Push(input_.Take(input_.Number(8)));
        return true;
      case 'X':  // BINUNICODE
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
        Push(input_.Take(input_.Number(4)));
        return true;
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
      case 0x8c:  // SHORT_BINUNICODE
        Push(input_.Take(input_.Byte()));
        return true;
      default:
        return false;
    }
  }

  bool Container(std::uint8_t code) {
    switch (code) {
      case ']':  // EMPTY_LIST
        Push(PickleList{});
        return true;
      case '}':  // EMPTY_DICT
        Push(PickleDict{});
        return true;
      case ')':  // EMPTY_TUPLE
        Push(PickleTuple{});
        return true;
      case 't':  // TUPLE
        Push(PickleTuple{PopToMark()});
        return true;
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        Push(PickleTuple{PopLast(code - std::size_t{0x84})});
        return true;
      case 'a':  // APPEND
        Append(PopLast(1));
        return true;
      case 'e':  // APPENDS
        Append(PopToMark());
        return true;
      case 's':  // SETITEM
        SetItems(PopLast(2));
        return true;
      case 'u':  // SETITEMS
        SetItems(PopToMark());
        return true;
      default:
        return false;
    }
  }

  bool Memo(std::uint8_t code) {
    switch (code) {
      case 'q':  // BINPUT
        Remember(input_.Number(1));
        return true;
      case 'r':  // LONG_BINPUT
        Remember(input_.Number(4));
        return true;
      case 0x94:  // MEMOIZE
        Remember(memo_.size());
        return true;
      case 'h':  // BINGET
        Recall(input_.Number(1));
        return true;
      case 'j':  // LONG_BINGET
        Recall(input_.Number(4));
        return true;
      default:
        return false;
    }
  }

  template <class T>
  void Push(T value) {
    if (pickle_.values_.size() == kPickleValuesMax) {
      throw PickleError("the pickle has more than " + std::to_string(kPickleValuesMax) + " values");
    }
    pickle_.values_.push_back({std::move(value)});
    stack_.push_back(&pickle_.values_.back());
  }

  void Remember(std::uint64_t key) {
    PickleValue* const value = Top();
    // One byte of the pickle may cost an entry of the memo; no pickler stores a value twice.
    if (memo_.size() == kPickleValuesMax) Malformed();
    memo_[key] = value;
  }

  void Recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) Malformed();
    // Each costs the pickle two bytes only, and a value's place on the stack is no new value.
    if (stack_.size() >= kPickleValuesMax) Malformed();
    stack_.push_back(found->second);
  }

  // Values below the last mark belong to a group that is not complete.
  std::size_t Bottom() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleValue* Top() const {
    if (stack_.size() <= Bottom()) Malformed();
    return stack_.back();
  }

  const PickleValue* Pop() {
    const PickleValue* const value = Top();
    stack_.pop_back();
    return value;
  }

  Values PopLast(std::size_t count) {
    if (stack_.size() - Bottom() < count) Malformed();
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    Values values(first, stack_.end());
    stack_.erase(first, stack_.end());
    return values;
  }

  Values PopToMark() {
    if (marks_.empty()) Malformed();
    Values values = PopLast(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  void Append(const Values& values) {
    auto* const list = std::get_if<PickleList>(&Top()->value);
    if (list == nullptr) return RequireObject();
    list->items.insert(list->items.end(), values.begin(), values.end());
  }

  void RequireObject() const {
    if (!std::holds_alternative<PickleCall>(Top()->value)) Malformed();
  }

  void SetItems(const Values& values) {
    auto* const dict = std::get_if<PickleDict>(&Top()->value);
    if (values.size() % 2 != 0) Malformed();
    if (dict == nullptr) return RequireObject();
    for (std::size_t i = 0; i < values.size(); i += 2)
      dict->items.emplace_back(values[i], values[i + 1]);
  }

  void StackGlobal() {
    const auto* const name = Pop()->As<std::string_view>();
    const auto* const module = Pop()->As<std::string_view>();
    if (name == nullptr || module == nullptr) Malformed();
    Push(PickleGlobal{*module, *name});
  }

  void Call() {
    const auto* const arguments = Pop()->As<PickleTuple>();
    if (arguments == nullptr) Malformed();
    const PickleValue* const function = Pop();
    if (!function->IsGlobal("collections", "OrderedDict") || !PushOrderedDict(arguments->items))
      Push(PickleCall{.function = function, .arguments = arguments});
  }

  // OrderedDict(), or, as Python 2 writes it, OrderedDict([[KEY, VALUE], ...]).
  bool PushOrderedDict(const Values& arguments) {
    PickleDict dict;
    const auto* const pairs = arguments.size() == 1 ? arguments[0]->As<PickleList>() : nullptr;
    if (pairs == nullptr && !arguments.empty()) return false;
    if (pairs != nullptr) pairs_ += pairs->items.size();
    if (pairs_ > kPickleValuesMax) Malformed();  // a few bytes may name one list again and again
    for (const PickleValue* item : pairs == nullptr ? Values() : pairs->items) {
      const auto* const pair = item->As<PickleList>();
      if (pair == nullptr || pair->items.size() != 2) return false;
      dict.items.emplace_back(pair->items[0], pair->items[1]);
    }
    Push(std::move(dict));
    return true;
  }

  void Build() {
    const PickleValue* const state = Pop();
    if (auto* const call = std::get_if<PickleCall>(&Top()->value)) {
      call->state = state;
    } else if (!std::holds_alternative<PickleDict>(Top()->value)) {
      Malformed();
    }
  }

  Input input_;
  Pickle pickle_;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;
  std::size_t pairs_ = 0;  // of all OrderedDicts of Python 2
  std::unordered_map<std::uint64_t, PickleValue*> memo_;
};

Pickle ParsePickle(std::string_view bytes) { return PickleParser(bytes).Parse(); }

}  // namespace ddprun

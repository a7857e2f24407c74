// SPDX-License-Identifier: Apache-2.0
#include "worker/files/ordered_dict_pickle.h"

#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace ddprun {
namespace {

using torch::jit::PickleOpCode;

std::uint32_t LittleEndian(const std::string& bytes, std::size_t at, std::size_t size) {
  if (at + size > bytes.size())
    throw std::runtime_error("the pickle ends in the middle of an instruction");
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at,
              size);  // a state dict is written on, and read by, little-endian machines
  return value;
}

std::size_t LineBytes(const std::string& bytes, std::size_t at) {
  const std::size_t end = bytes.find('\n', at);
  if (end == std::string::npos)
    throw std::runtime_error("the pickle ends in the middle of an instruction");
  return end + 1 - at;
}

// Bytes that follow the instruction at `at`. Only those of pickle protocol 2 that tensors, names,
// numbers and dicts need; torch.save writes no other protocol.
std::size_t OperandBytes(const std::string& bytes, std::size_t at) {
  const std::size_t next = at + 1;
  switch (static_cast<PickleOpCode>(bytes[at])) {
    case PickleOpCode::MARK:
    case PickleOpCode::STOP:
    case PickleOpCode::NONE:
    case PickleOpCode::REDUCE:
    case PickleOpCode::APPEND:
    case PickleOpCode::APPENDS:
    case PickleOpCode::BUILD:
    case PickleOpCode::EMPTY_DICT:
    case PickleOpCode::EMPTY_LIST:
    case PickleOpCode::EMPTY_TUPLE:
    case PickleOpCode::SETITEM:
    case PickleOpCode::SETITEMS:
    case PickleOpCode::TUPLE:
    case PickleOpCode::TUPLE1:
    case PickleOpCode::TUPLE2:
    case PickleOpCode::TUPLE3:
    case PickleOpCode::BINPERSID:
    case PickleOpCode::NEWTRUE:
    case PickleOpCode::NEWFALSE:
      return 0;
    case PickleOpCode::PROTO:
    case PickleOpCode::BININT1:
    case PickleOpCode::BINGET:
    case PickleOpCode::BINPUT:
      return 1;
    case PickleOpCode::BININT2:
      return 2;
    case PickleOpCode::BININT:
    case PickleOpCode::LONG_BINGET:
    case PickleOpCode::LONG_BINPUT:
      return 4;
    case PickleOpCode::BINFLOAT:
      return 8;
    case PickleOpCode::LONG1:
      return 1 + LittleEndian(bytes, next, 1);
    case PickleOpCode::BINUNICODE:
      return 4 + std::size_t{LittleEndian(bytes, next, 4)};
    case PickleOpCode::GLOBAL: {
      const std::size_t module_bytes = LineBytes(bytes, next);
      return module_bytes + LineBytes(bytes, next + module_bytes);
    }
    default:
      throw std::runtime_error("the pickle has instruction " +
                               std::to_string(static_cast<unsigned char>(bytes[at])) +
                               ", which no state dict contains");
  }
}

bool ClosesMark(PickleOpCode code) {
  return code == PickleOpCode::SETITEMS || code == PickleOpCode::TUPLE ||
         code == PickleOpCode::APPENDS;
}

// Where the parts of an OrderedDict's pickle end.
struct Layout {
  bool is_ordered_dict = false;
  std::size_t made = 0;  // the empty OrderedDict is on the stack
  std::size_t items =
      0;  // all its items are set; then come its attributes, if it has any, and STOP
};

Layout FindLayout(const std::string& pickle) {
  constexpr std::string_view kOrderedDict = "ccollections\nOrderedDict\n";
  Layout layout;
  int marks = 0;
  std::size_t at = 0;
  for (auto code = PickleOpCode::PROTO; at < pickle.size() && code != PickleOpCode::STOP;) {
    code = static_cast<PickleOpCode>(pickle[at]);
    const std::size_t end = at + 1 + OperandBytes(pickle, at);
    if (code == PickleOpCode::MARK) ++marks;
    if (ClosesMark(code)) --marks;
    if (layout.made == 0) {
      layout.is_ordered_dict |= pickle.compare(at, kOrderedDict.size(), kOrderedDict) == 0;
      if (code == PickleOpCode::REDUCE) layout.made = end;
      if (marks > 0 || code == PickleOpCode::EMPTY_DICT) return {};  // begins with something else
    } else if (layout.items == 0 && marks == 0 &&
               (code == PickleOpCode::EMPTY_DICT || code == PickleOpCode::STOP)) {
      // Outside all groups of items a dict can only be that of the attributes.
      layout.items = at;
    }
    at = end;
  }
  layout.is_ordered_dict &= layout.items > 0;
  return layout;
}

}  // namespace

std::string WithPlainDict(std::string pickle) {
  const Layout layout = FindLayout(pickle);
  if (!layout.is_ordered_dict) return pickle;
  // The call that makes an OrderedDict stays, because tensors refer to its name; its result is the
  // pair's first half.
  std::string rewritten = pickle.substr(0, layout.made);
  rewritten.push_back(static_cast<char>(PickleOpCode::EMPTY_DICT));
  rewritten.append(pickle, layout.made, layout.items - layout.made);
  rewritten.push_back(static_cast<char>(PickleOpCode::TUPLE2));
  rewritten.push_back(static_cast<char>(PickleOpCode::STOP));
  return rewritten;
}

}  // namespace ddprun

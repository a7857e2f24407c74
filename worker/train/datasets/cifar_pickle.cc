// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/cifar_pickle.h"

#include <ATen/Functions.h>

#include <initializer_list>
#include <string_view>

#include "rendezvous/values/pickle.h"

namespace ddprun {
namespace {

constexpr int kProtocolMax = 5;
// The state of numpy's array: version, shape, dtype, whether Fortran order, bytes.
constexpr std::size_t kArrayState = 5;
constexpr std::size_t kNameShown = 80;

class CifarPickle {
 public:
  CifarPickle(const std::string& path, const std::string& next_move)
      : path_(path), next_move_(next_move), file_(MapDataFile(path, next_move)), pickle_(Parse()) {}

  [[noreturn]] void Fail(const std::string& fact) const {
    throw DataError(path_ + ": " + fact + "; " + next_move_);
  }

  // The value of `key` in the file's dict.
  const PickleValue* Find(const std::string& key) const {
    for (const auto& [name, value] : Get<PickleDict>(&pickle_.root(), "a dict").items) {
      const auto* text = name->As<std::string_view>();
      if (text != nullptr && *text == key) return value;
    }
    Fail("has no " + key + ", it is no CIFAR file");
  }

  template <class T>
  const T& Get(const PickleValue* value, const char* what) const {
    if (const T* found = value->As<T>()) return *found;
    Fail(std::string("has something else where ") + what + " belongs");
  }

  // The pixels stay in the file.
  at::Tensor Pixels(const PickleValue* value) const {
    const PickleCall& array =
        Call(value, {"numpy.core.multiarray", "numpy._core.multiarray"}, "_reconstruct");
    if (array.state == nullptr) Fail("has an array without a state");
    const auto& state = Get<PickleTuple>(array.state, "an array's state").items;
    if (state.size() != kArrayState) Fail("has an array whose state is none");
    const auto& shape = Get<PickleTuple>(state[1], "a shape").items;
    if (shape.size() != 2) Fail("has an array of other than two dimensions");
    const auto count = Get<std::int64_t>(shape[0], "a number");
    const auto width = Get<std::int64_t>(shape[1], "a number");
    const auto& dtype = Call(state[2], {"numpy"}, "dtype").arguments->items;
    const auto type = dtype.empty() ? "" : Get<std::string_view>(dtype[0], "a type's name");
    if (type != "u1" && type != "|u1") Fail("has an array of other numbers than bytes");
    const bool first_is_fastest = Get<bool>(state[3], "a truth value");
    const auto bytes = Get<std::string_view>(state[4], "the array's bytes");
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (width != kCifarImageBytes || count < 1 || size % kCifarImageBytes != 0 ||
        size / kCifarImageBytes != count)
      Fail("has " + std::to_string(size) + " bytes of pixels for " + std::to_string(count) +
           " images of " + std::to_string(width) + " bytes");
    const std::int64_t begin = bytes.data() - Bytes().data();
    const at::Tensor rows = first_is_fastest
                                ? file_.as_strided({count, width}, {1, count}, begin).contiguous()
                                : file_.as_strided({count, width}, {width, 1}, begin);
    return rows.view({count, 3, kCifarSide, kCifarSide});
  }

 private:
  std::string_view Bytes() const {
    return {static_cast<const char*>(file_.const_data_ptr()), file_.nbytes()};
  }

  Pickle Parse() const {
    const std::string_view bytes = Bytes();
    if (bytes.size() < 2 || bytes[0] != '\x80' || bytes[1] < 0 || bytes[1] > kProtocolMax)
      Fail("is not a pickle that Python 3 reads");
    try {
      return ParsePickle(bytes);
    } catch (const PickleError& error) {
      Fail(std::string("is damaged: ") + error.what());
    }
  }

  const PickleCall& Call(const PickleValue* value, std::initializer_list<std::string_view> modules,
                         std::string_view name) const {
    const auto& call = Get<PickleCall>(value, "an array");
    for (const std::string_view module : modules) {
      if (call.function->IsGlobal(module, name)) return call;
    }
    const auto& function = Get<PickleGlobal>(call.function, "a function");
    Fail(c10::str("names ", function.module.substr(0, kNameShown), ".",
                  function.name.substr(0, kNameShown),
                  ", which no CIFAR file does, and nothing of it was run"));
  }

  const std::string& path_;
  const std::string& next_move_;
  const at::Tensor file_;
  const Pickle pickle_;
};

}  // namespace

LabelledImages MapCifarPickle(const std::string& path, const std::string& labels_key,
                              const std::string& next_move) {
  const CifarPickle file(path, next_move);
  LabelledImages set{.images = file.Pixels(file.Find("data"))};
  const auto& list = file.Get<PickleList>(file.Find(labels_key), "a list of labels").items;
  if (static_cast<std::int64_t>(list.size()) != set.images.size(0))
    file.Fail("has " + std::to_string(list.size()) + " labels for " +
              std::to_string(set.images.size(0)) + " images");
  set.labels = at::empty({set.images.size(0)}, at::kLong);
  auto* label = set.labels.data_ptr<std::int64_t>();
  for (const PickleValue* value : list) *label++ = file.Get<std::int64_t>(value, "a label");
  return set;
}

std::vector<std::string> ReadPickledNames(const std::string& path, const std::string& key,
                                          const std::string& next_move) {
  const CifarPickle file(path, next_move);
  std::vector<std::string> names;
  for (const PickleValue* value : file.Get<PickleList>(file.Find(key), "a list of names").items)
    names.emplace_back(file.Get<std::string_view>(value, "a name"));
  return names;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/torch_pickle.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

constexpr std::size_t kDimensionsMax = 64;

struct StorageType {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array<StorageType, 10> kStorageTypes = {{{"DoubleStorage", at::kDouble},
                                                        {"FloatStorage", at::kFloat},
                                                        {"HalfStorage", at::kHalf},
                                                        {"BFloat16Storage", at::kBFloat16},
                                                        {"LongStorage", at::kLong},
                                                        {"IntStorage", at::kInt},
                                                        {"ShortStorage", at::kShort},
                                                        {"CharStorage", at::kChar},
                                                        {"ByteStorage", at::kByte},
                                                        {"BoolStorage", at::kBool}}};

[[noreturn]] void NotATensor() {
  throw std::runtime_error(
      "it holds something else than names and tensors; save "
      "model.state_dict()");
}

template <class T>
const T& Get(const PickleValue* value) {
  const T* const found = value->As<T>();
  if (found == nullptr) NotATensor();
  return *found;
}

std::size_t Count(const PickleValue* value) {
  const std::int64_t count = Get<std::int64_t>(value);
  if (count < 0) throw std::runtime_error("a size or an offset in it is negative");
  return static_cast<std::size_t>(count);
}

std::vector<std::int64_t> Counts(const PickleValue* value) {
  const auto& items = Get<PickleTuple>(value).items;
  if (items.size() > kDimensionsMax)
    throw std::runtime_error("a tensor in it has " + std::to_string(items.size()) + " dimensions");
  std::vector<std::int64_t> counts;
  for (const PickleValue* item : items) counts.push_back(static_cast<std::int64_t>(Count(item)));
  return counts;
}

// Elements of a storage that a view of it needs; nothing where that is beyond 64 bits.
std::optional<std::size_t> ElementsNeeded(std::size_t offset, at::IntArrayRef sizes,
                                          at::IntArrayRef strides) {
  std::size_t elements = 1;
  std::size_t last = offset;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto size = static_cast<std::size_t>(sizes[i]);
    std::size_t reach = 0;
    if (__builtin_mul_overflow(elements, std::max<std::size_t>(size, 1), &elements) ||
        __builtin_mul_overflow(std::max<std::size_t>(size, 1) - 1,
                               static_cast<std::size_t>(strides[i]), &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return std::nullopt;
    }
  }
  if (elements > INT64_MAX || last >= INT64_MAX) return std::nullopt;
  if (std::count(sizes.begin(), sizes.end(), 0) > 0) return 0;
  // A view whose elements share their place can be far larger than what it shows.
  return std::max(last, elements - 1) + 1;
}

at::ScalarType TypeOf(const PickleGlobal& global) {
  for (const StorageType& known : kStorageTypes) {
    if (global.module == "torch" && global.name == known.name) return known.type;
  }
  throw std::runtime_error(
      c10::str("it has tensors of ", global.module, ".", global.name, ", which is not known here"));
}

class Tensors {
 public:
  explicit Tensors(const FindTorchStorage& find_storage) : find_storage_(find_storage) {}

  at::Tensor Tensor(const PickleValue* value) {
    const auto& call = Get<PickleCall>(value);
    const auto& arguments = call.arguments->items;
    const bool parameter = call.function->IsGlobal("torch._utils", "_rebuild_parameter") ||
                           call.function->IsGlobal("torch.nn.parameter", "Parameter");
    if (parameter && !arguments.empty()) return RebuildTensor(Get<PickleCall>(arguments[0]));
    return RebuildTensor(call);
  }

 private:
  // (storage, storage_offset, size, stride, and in _v2 requires_grad, backward_hooks)
  at::Tensor RebuildTensor(const PickleCall& call) {
    const auto& arguments = call.arguments->items;
    const bool known = call.function->IsGlobal("torch._utils", "_rebuild_tensor_v2") ||
                       call.function->IsGlobal("torch._utils", "_rebuild_tensor");
    if (!known || arguments.size() < 4) NotATensor();
    const auto id = StorageIdOf(Get<PicklePersistentId>(arguments[0]));
    if (!id) NotATensor();
    const at::Storage& storage = FindStorage(*id);
    const std::size_t offset = Count(arguments[1]);
    const std::vector<std::int64_t> sizes = Counts(arguments[2]);
    const std::vector<std::int64_t> strides = Counts(arguments[3]);
    if (sizes.size() != strides.size()) NotATensor();
    const auto needed = ElementsNeeded(offset, sizes, strides);
    if (!needed || *needed > id->elements)
      throw std::runtime_error("a tensor in it reaches beyond its storage");
    at::Tensor tensor = at::empty({0}, id->type);
    if (*needed == 0) return tensor.resize_(sizes);
    return tensor.set_(storage, static_cast<std::int64_t>(offset), sizes, strides);
  }

  const at::Storage& FindStorage(const TorchStorageId& id) {
    const std::string key(id.key);
    auto found = storages_.find(key);
    if (found == storages_.end())
      found = storages_.emplace(key, std::pair(id.type, find_storage_(key))).first;
    const auto& [type, storage] = found->second;
    if (type != id.type || storage.nbytes() != id.bytes())
      throw std::runtime_error("its storage " + key + " is not of the size that it claims");
    return storage;
  }

  const FindTorchStorage& find_storage_;
  std::unordered_map<std::string, std::pair<at::ScalarType, at::Storage>> storages_;
};

// The names under which training programs keep a model's state.
constexpr std::array<std::string_view, 4> kStateNames = {"state_dict", "model_state_dict", "model",
                                                         "net"};

// The class of an object that is no tensor; null for other values. Of a module the older format
// has ("module", CLASS, FILE, SOURCE) instead of its class.
const PickleGlobal* ClassOf(const PickleValue& value) {
  const auto* const object = value.As<PickleCall>();
  if (object == nullptr) return nullptr;
  const PickleValue* function = object->function;
  if (const auto* const id = function->As<PicklePersistentId>()) {
    const auto* const parts = id->id->As<PickleTuple>();
    if (parts == nullptr || parts->items.size() < 2) return nullptr;
    function = parts->items[1];
  }
  const auto* const type = function->As<PickleGlobal>();
  if (type == nullptr || type->module == "torch._utils" || type->module == "torch.nn.parameter")
    return nullptr;
  return type;
}

// Rejects a pickled object in the place of a dict of tensors.
void RejectObject(const PickleValue& value) {
  if (const PickleGlobal* const type = ClassOf(value)) {
    throw std::runtime_error(c10::str("it holds a whole ", type->module, ".", type->name,
                                      " instead of its weights; save model.state_dict()"));
  }
}

const PickleDict& StateIn(const PickleValue& root) {
  RejectObject(root);
  const auto* const dict = root.As<PickleDict>();
  if (dict == nullptr)
    throw std::runtime_error("it holds no dict; save model.state_dict(), not the model");
  for (const std::string_view name : kStateNames) {
    for (const auto& [key, value] : dict->items) {
      const auto* const text = key->As<std::string_view>();
      if (text == nullptr || *text != name) continue;
      RejectObject(*value);
      if (const auto* const state = value->As<PickleDict>()) return *state;
    }
  }
  return *dict;
}

}  // namespace

std::size_t TorchStorageId::bytes() const {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(elements, c10::elementSize(type), &bytes))
    throw std::runtime_error("its storage " + std::string(key) +
                             " is not of the size that it claims");
  return bytes;
}

// ("storage", torch.FloatStorage, key, location, elements), and in the older format a view
std::optional<TorchStorageId> StorageIdOf(const PicklePersistentId& id) {
  const auto& parts = Get<PickleTuple>(id.id).items;
  const auto* const kind = parts.empty() ? nullptr : parts[0]->As<std::string_view>();
  if (kind == nullptr || *kind != "storage") return std::nullopt;
  if (parts.size() < 5 || parts.size() > 6) NotATensor();
  if (parts.size() == 6 && parts[5]->As<PickleNone>() == nullptr)
    throw std::runtime_error("it has views of storages; load it in PyTorch and save it again");
  return TorchStorageId{.key = Get<std::string_view>(parts[2]),
                        .type = TypeOf(Get<PickleGlobal>(parts[1])),
                        .elements = Count(parts[4])};
}

NamedTensors TensorsOf(const Pickle& pickle, const FindTorchStorage& find_storage) {
  Tensors tensors(find_storage);
  NamedTensors named;
  for (const auto& [name, value] : StateIn(pickle.root()).items)
    named.emplace_back(Get<std::string_view>(name), tensors.Tensor(value));
  return named;
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/state_dict.h"

#include <ATen/core/Dict.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <unordered_map>

#include "worker/library/base/first_line.h"
#include "worker/library/files/atomic_file.h"
#include "worker/library/files/torch_archive.h"

namespace ddprun {
namespace {

using Dictionary = c10::Dict<std::string, at::Tensor>;

void Collect(const torch::nn::Module& module, const std::string& prefix, NamedTensors& state) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    state.emplace_back(prefix + item.key(), item.value());
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    state.emplace_back(prefix + item.key(), item.value());
  }
  for (const auto& child : module.named_children()) {
    Collect(*child.value(), prefix + child.key() + ".", state);
  }
}

// On the CPU, contiguous, and not a view of a larger storage, which would be written as a whole.
// Tensors that are one and the same stay so.
Dictionary ToPortable(const NamedTensors& state) {
  Dictionary dictionary;
  std::unordered_map<const void*, at::Tensor> done;
  for (const auto& [name, tensor] : state) {
    at::Tensor& portable = done[tensor.unsafeGetTensorImpl()];
    if (!portable.defined()) {
      portable = tensor.detach().to(at::kCPU).contiguous();
      if (portable.storage().nbytes() != portable.nbytes()) portable = portable.clone();
    }
    dictionary.insert(name, portable);
  }
  return dictionary;
}

// Names a storage's record in the archive "data/0", "data/1", ...; a storage seen again keeps its
// name.
class StorageNames {
 public:
  std::string NameOf(const at::Tensor& tensor) {
    const auto [entry, is_new] =
        numbers_.try_emplace(tensor.storage().unsafeGetStorageImpl(), storages_.size());
    if (is_new) storages_.push_back(tensor.storage());
    return std::to_string(entry->second);
  }
  const std::vector<at::Storage>& storages() const { return storages_; }

 private:
  std::unordered_map<const void*, std::size_t> numbers_;
  std::vector<at::Storage> storages_;
};

void WriteArchive(const Dictionary& dictionary, AtomicFile& file) {
  std::string pickle;
  StorageNames names;
  // Without tags: torch.load's default refuses the call that would restore a TorchScript type.
  torch::jit::Pickler pickler(
      [&](const char* data, std::size_t size) { pickle.append(data, size); }, nullptr, nullptr,
      nullptr, [&](const at::Tensor& tensor) { return names.NameOf(tensor); },
      /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(c10::IValue(dictionary));
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, std::size_t size) {
    file.Write(data, size);
    return size;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", "little", std::strlen("little"));
  for (std::size_t i = 0; i < names.storages().size(); ++i) {
    const at::Storage& storage = names.storages()[i];
    writer.writeRecord("data/" + std::to_string(i), storage.data(), storage.nbytes());
  }
  writer.writeEndOfFile();
}

}  // namespace

NamedTensors ReadStateDict(const std::string& path) {
  if (!std::filesystem::exists(path)) throw std::runtime_error(path + " is not there");
  const std::string sentence = path + " is not a state dict that torch.save wrote: ";
  try {
    return ReadTorchFile(path);
  } catch (const c10::Error& error) {
    throw std::runtime_error(sentence + FirstLine(error));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(sentence + error.what());
  }
}

namespace {

std::string NameSome(const std::vector<std::string>& names) {
  constexpr std::size_t kNamedMax = 5;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kNamedMax; ++i)
    list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamedMax)
    list += " and " + std::to_string(names.size() - kNamedMax) + " more";
  return list;
}

// All that does not fit, so that it is repaired in one go; empty if everything fits.
std::string Misfits(const NamedTensors& state,
                    const std::unordered_map<std::string, at::Tensor>& tensors) {
  std::vector<std::string> missing, shapes, unexpected;
  std::unordered_map<std::string, bool> known;
  for (const auto& [name, tensor] : state) {
    known[name] = true;
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      shapes.push_back(
          c10::str(name, " is ", found->second.sizes(), " instead of ", tensor.sizes()));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name)) unexpected.push_back(name);
  }
  std::sort(unexpected.begin(), unexpected.end());
  std::string text;
  if (!missing.empty()) text += "; missing: " + NameSome(missing);
  if (!unexpected.empty()) text += "; unexpected: " + NameSome(unexpected);
  if (!shapes.empty()) text += "; of another shape: " + NameSome(shapes);
  return text;
}

// A tensor that the model has under several names can only take one value.
void RequireAlike(const NamedTensors& state,
                  const std::unordered_map<std::string, at::Tensor>& by_name,
                  const std::string& source) {
  std::unordered_map<const c10::TensorImpl*, std::string> first_names;
  for (const auto& [name, tensor] : state) {
    const auto [first, is_new] = first_names.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new || at::equal(by_name.at(first->second), by_name.at(name))) continue;
    throw std::runtime_error(source + " does not fit the model: " + first->second + " and " + name +
                             " differ there, and are one tensor of the model; for netresdeep leave "
                             "out --shared-blocks");
  }
}

}  // namespace

NamedTensors StateDict(const torch::nn::Module& module) {
  NamedTensors state;
  Collect(module, "", state);
  return state;
}

void SaveStateDict(const torch::nn::Module& module, const std::string& path) {
  SaveStateDict(StateDict(module), path);
}

void SaveStateDict(const NamedTensors& state, const std::string& path) {
  const Dictionary dictionary = ToPortable(state);
  AtomicFile file(path);
  try {
    WriteArchive(dictionary, file);
  } catch (const c10::Error& error) {
    throw std::runtime_error(path + " cannot be written: " + FirstLine(error));
  }
  file.Commit();
}

void LoadTensors(torch::nn::Module& module, const NamedTensors& tensors,
                 const std::string& source) {
  const NamedTensors state = StateDict(module);
  const std::unordered_map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  const std::string misfits = Misfits(state, by_name);
  if (!misfits.empty()) throw std::runtime_error(source + " does not fit the model" + misfits);
  RequireAlike(state, by_name, source);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) at::Tensor(tensor).copy_(by_name.at(name));
}

void LoadStateDict(torch::nn::Module& module, const std::string& path) {
  LoadTensors(module, ReadStateDict(path), path);
}

}  // namespace ddprun

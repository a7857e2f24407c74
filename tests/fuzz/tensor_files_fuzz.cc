// SPDX-License-Identifier: Apache-2.0
// Files of tensors, which may come from anyone: safetensors, and the archives of torch.save().
#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "worker/library/files/safetensors.h"
#include "worker/library/files/torch_archive.h"

namespace ddprun::fuzz {
namespace {

// A file in memory, by a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", 0)) {
    Require(write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "the input can be written");
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

std::string SafetensorsSeed() {
  const NamedTensors tensors = {{"a", at::ones({2, 3})}, {"b", at::ones({4}, at::kLong)}};
  const SafetensorsLayout layout = LayOutSafetensors(tensors, {{"key", "text"}});
  return layout.head + std::string(layout.file_bytes - layout.head.size(), '\1');
}

// torch.ones(2, 3) as "w" in a dict, and "0" its storage.
std::string PickleSeed() {
  using namespace std::string_literals;
  const std::string zeros(3, '\0');
  return "\x80\x02}(X\x01"s + zeros + "wctorch._utils\n_rebuild_tensor_v2\n((X\x07" + zeros +
         "storagectorch\nFloatStorage\nX\x01" + zeros + "0X\x03" + zeros +
         "cpuK\x06tQK\0(K\x02K\x03t(K\x03K\x01t\x89"s + "ccollections\nOrderedDict\n)RtRu."s;
}

// What Python's torch.save({'w': torch.ones(2, 3)}) writes, and wrote before PyTorch 1.6.
std::string StreamSeed() {
  using namespace std::string_literals;
  return "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
         "\x80\x02}U\x0dlittle_endian\x88s."s +
         PickleSeed() + "\x80\x02](U\x01" + "0e.\x06\0\0\0\0\0\0\0"s + std::string(24, '\1');
}

std::string ArchiveSeed() {
  const std::string pickle = PickleSeed();
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter writer([&bytes](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  const std::vector<float> ones(6, 1);
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("data/0", ones.data(), ones.size() * sizeof(float));
  writer.writeEndOfFile();
  return bytes;
}

}  // namespace

std::vector<std::string> Seeds() { return {SafetensorsSeed(), ArchiveSeed(), StreamSeed()}; }

bool Try(std::string_view bytes) {
  const MemoryFile file(bytes);
  bool accepted = false;
  try {
    const SafetensorsFile opened(file.path());
    for (const auto& [name, tensor] : opened.tensors()) (void)tensor.clone();  // within the file
    accepted = true;
  } catch (const std::exception&) {
  }
  try {
    for (const auto& [name, tensor] : ReadTorchFile(file.path())) (void)tensor.clone();
    accepted = true;
  } catch (const std::exception&) {
  }
  return accepted;
}

}  // namespace ddprun::fuzz

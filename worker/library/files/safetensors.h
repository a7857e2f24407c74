// SPDX-License-Identifier: Apache-2.0
// Tensors by name in one file, in Hugging Face's safetensors format
// (https://huggingface.co/docs/safetensors): eight bytes with the header's length (little-endian),
// the header as JSON {"NAME": {"dtype", "shape", "data_offsets": [begin, end)}, ...,
// "__metadata__": {text: text}}, then the tensors' bytes without gaps, in C order, little-endian.
// Nothing in it can be run.
#pragma once

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/library/files/named_tensors.h"

namespace ddprun {

// Limits for a file that is opened; the header's is the format's own (safetensors/src/tensor.rs).
inline constexpr std::size_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr std::size_t kSafetensorsDimensionsMax = 64;

using SafetensorsMetadata = std::map<std::string, std::string>;

// The file is not what the format says: one sentence that names the file and what is wrong.
struct SafetensorsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file opened for reading. It is mapped, not copied: the tensors are views that keep the mapping
// alive and may outlive this object. To write to one changes it in memory only. The file must not
// become shorter while it is in use: replace it by a new one instead, as WriteSafetensors() does.
class SafetensorsFile {
 public:
  // Throws SafetensorsError; std::runtime_error if the file cannot be opened.
  explicit SafetensorsFile(const std::string& path);

  // In the order of their bytes in the file. On the CPU, contiguous.
  const NamedTensors& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Everything before the tensors' bytes: the length and the header.
  const std::string& head() const { return head_; }

 private:
  NamedTensors tensors_;
  SafetensorsMetadata metadata_;
  std::string head_;
};

// Where everything lies in a file of such tensors. They are ordered by the size of their elements,
// the largest first, so that each is aligned, and else as given.
struct SafetensorsLayout {
  struct Place {
    std::size_t tensor = 0;  // index into what was given
    std::size_t offset = 0;  // in the file
    std::size_t bytes = 0;
  };
  std::string head;  // padded to a multiple of 64 bytes
  std::vector<Place> places;
  std::size_t file_bytes = 0;
};

// Throws std::invalid_argument for a name that comes twice or is "__metadata__", and for an element
// type that the format does not know.
SafetensorsLayout LayOutSafetensors(const NamedTensors& tensors,
                                    const SafetensorsMetadata& metadata);

// The file is the old one or the whole new one, and on the disk when this returns. Tensors may be
// on any device and of any strides. Throws as LayOutSafetensors() does, and std::runtime_error that
// names the path and the system's reason.
void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const SafetensorsMetadata& metadata = {});

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
// A checkpoint as a file: a safetensors file, which any tool opens, in which every bit is covered
// by a checksum. Its metadata are
//   format   "ddprun-checkpoint-1"
//   ddprun   what the checkpoint is of, as JSON (Snapshot::about)
//   crc32c   {"NAME": "8 hexadecimal digits"} of every tensor's bytes, as JSON
// and its last tensor `checksum` (U8, 4, little-endian) is the CRC-32C of all that comes before the
// tensors' bytes.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddprun/errors.h"
#include "worker/library/files/named_tensors.h"

namespace ddprun {

// What a checkpoint holds. Of tensors by convention "model/NAME", "optimizer/NAME/STATE",
// "ema/NAME", "random/RANK".
struct Snapshot {
  NamedTensors tensors;
  nlohmann::json about = nlohmann::json::object();
};

// The bytes of a checkpoint's file. To be filled again and again: the memory is kept.
class CheckpointImage {
 public:
  // Copies the tensors, of any device and strides; a device needs no memory for it. Uses only the
  // calling thread, and of ATen's threads none for tensors on the CPU that are contiguous or
  // channels-last. Throws std::invalid_argument for what a safetensors file cannot hold, and for a
  // tensor "checksum".
  void Fill(const Snapshot& snapshot);

  // A tensor of the latest Fill() with an infinity or a NaN; empty if there is none. A training
  // that has diverged is not worth a file, least of all one that replaces a good one.
  std::string NotFinite() const;

  const char* bytes() const { return static_cast<const char*>(memory_.const_data_ptr()); }
  std::size_t size() const { return size_; }

 private:
  struct Place {
    std::string name;
    at::ScalarType type = at::kFloat;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  at::Tensor memory_;
  std::vector<Place> places_;
  std::size_t size_ = 0;
};

// "checkpoint PATH is damaged or none: FACT". The caller knows the next move.
struct DamagedCheckpoint : CheckpointError {
  DamagedCheckpoint(const std::string& path, const std::string& fact);
};

// The tensors are views of the file (see SafetensorsFile), all of them checked, by several threads;
// and so are the fields of `about` that are there (header_fields.h). Throws DamagedCheckpoint, and
// CheckpointError if the file cannot be read.
Snapshot ReadCheckpoint(const std::string& path);

}  // namespace ddprun

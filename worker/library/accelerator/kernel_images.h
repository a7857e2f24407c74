// SPDX-License-Identifier: Apache-2.0
// The compiled kernels within libddprun_cuda.so. compile_kernels writes a .cc for each source of
// worker/train/kernels, which adds its module here when the library is loaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct KernelImage {
  int capability = 0;      // 10 * major + minor, as in sm_90
  bool is_ptx = false;     // else machine code (a cubin)
  std::string_view image;  // a PTX ends with a zero, which is not counted
};

struct KernelModule {
  std::string source;  // "batch.cu"
  std::vector<std::string> kernels;
  std::vector<KernelImage> images;
};

// All modules; within libddprun_cuda.so alone (elsewhere: Accelerator::EmbeddedKernels()).
std::vector<KernelModule>& KernelModules();

// The image for a device of this capability: machine code runs on devices of its major version and
// a minor one not below its own; PTX, which the driver compiles, on all from its capability on.
// Null if there is none.
const KernelImage* ImageFor(const KernelModule& module, int capability);

}  // namespace ddprun

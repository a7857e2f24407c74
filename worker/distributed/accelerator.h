// SPDX-License-Identifier: Apache-2.0
// CUDA and NCCL behind an interface, implemented in a library of its own (libddprun_cuda.so,
// cuda_backend.cc) that is opened when a GPU is wanted: a CPU run then neither loads nor needs
// them.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

// Counted up with every change of Accelerator: a module of another build is refused instead of
// crashing.
inline constexpr int kAcceleratorInterface = 3;

class Accelerator {
 public:
  struct GroupOptions {
    int rank = 0;
    int size = 1;
    int device = 0;  // of this process; must be current, see SetDevice()
    std::chrono::milliseconds timeout{0};
    std::string group_name;
  };

  virtual ~Accelerator() = default;

  // Devices that CUDA shows to this process (CUDA_VISIBLE_DEVICES is heard). 0 without a driver.
  virtual int DeviceCount() const = 0;

  // Makes `device` this process's: before a tensor or a group is made on it. Throws c10::Error.
  virtual void SetDevice(int device) = 0;

  // ProcessGroupNCCL, on streams of high priority. The unique ID goes through `store` when the
  // first collective makes the communicator, or Connect() does.
  virtual c10::intrusive_ptr<c10d::Backend> MakeNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const GroupOptions& options) = 0;

  // Makes the communicator of a group that MakeNccl() made, and its connections, by one small
  // all-reduce, which all ranks take part in; returns when that is done. Throws c10::Error.
  virtual void Connect(const c10::intrusive_ptr<c10d::Backend>& nccl, int device,
                       std::chrono::milliseconds timeout) = 0;

  // c10d::dump_nccl_trace_json(), as flight_record.h reads it. From any thread; blocks where CUDA
  // does.
  virtual std::string FlightRecord() = 0;

  // Waits until the device has done all that was queued. Throws c10::Error.
  virtual void Synchronize(int device) = 0;

  // An NVTX range of the calling thread, as a profiler shows it; ranges nest. Needs no device.
  virtual void PushRange(const char* name) = 0;
  virtual void PopRange() = 0;

  // "CUDA 13.0, driver 13.0, NCCL 2.28.9"; "no driver" without one.
  virtual std::string Versions() const = 0;

  // What ncclGetUniqueId() gives; needs no device. Throws c10::Error.
  virtual std::vector<uint8_t> NcclUniqueId() const = 0;
};

// The one function that the module exports, under this name.
inline constexpr const char* kAcceleratorSymbol = "ddprun_accelerator";
using AcceleratorFunction = Accelerator* (*)(int interface);

// Devices that the installed driver shows, asked of the driver alone: nothing of LibTorch's CUDA is
// loaded.
int DriverDeviceCount();

// Opens the module: beside this program, or in ../bin of it. Stays open to the process's end, since
// CUDA cannot be unloaded. Throws std::runtime_error with one sentence that says what is missing.
Accelerator& LoadAccelerator();

}  // namespace ddprun

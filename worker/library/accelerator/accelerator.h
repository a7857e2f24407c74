// SPDX-License-Identifier: Apache-2.0
// Interface to CUDA and NCCL, implemented in a library of its own (libddprun_cuda.so,
// cuda_backend.cc) that is opened when a GPU is used: a CPU run neither loads nor needs them.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/library/accelerator/kernel_images.h"
#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun {

// Incremented with every change of Accelerator: a module of another build is rejected instead of
// crashing.
inline constexpr int kAcceleratorInterface = 8;

// Work that a device does again and again by itself (a CUDA graph).
class StepGraph {
 public:
  virtual ~StepGraph() = default;

  // Records what `work` queues on the calling thread's stream, and on others that wait for it, and
  // does none of it. Once. Throws c10::Error if something cannot be recorded; the device's state is
  // not defined then.
  virtual void Capture(const std::function<void()>& work) = 0;
  // Queues it all, after what the calling thread has queued.
  virtual void Replay() = 0;
};

using MakeStepGraph = std::function<std::unique_ptr<StepGraph>()>;

// A place in what a thread has queued on its stream.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  // Whether the device has come so far. Does not wait.
  virtual bool Passed() const = 0;
};

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

  // Gives the calling thread a stream of its own on `device`, on which a graph can be captured.
  // Before the model is made: backward runs where forward did.
  virtual void UseOwnStream(int device) = 0;
  // Makes graphs that share their memory, so no two of them may run at a time. Once all of them are
  // destroyed, no other graph of the same maker can be captured: LibTorch's allocator asserts that
  // such a pool of memory is in use. So each StepRecorder has one of its own.
  virtual MakeStepGraph GraphMaker() = 0;
  // After all that the calling thread has queued so far.
  virtual std::unique_ptr<StreamMark> MakeMark() = 0;

  // The kernels of worker/train/kernels on `device`; null if it is too old for them. Loaded by the
  // first call, which must come before a graph is captured. From any thread. Throws c10::Error.
  virtual KernelLauncher* Kernels(int device) = 0;
  // What of them the library holds; needs no device.
  virtual const std::vector<KernelModule>& EmbeddedKernels() const = 0;

  // That an allocation may still take.
  virtual std::int64_t FreeBytes(int device) = 0;
  // That LibTorch's allocator holds. Never waits for the device.
  virtual std::int64_t HeldBytes(int device) = 0;

  // 0: ignore; 1: warn; 2: throw c10::Error when the host is about to wait for a device. Of the
  // whole process (torch.cuda.set_sync_debug_mode).
  virtual void OnWait(int mode) = 0;

  // Makes the communicator of a group that MakeNccl() made, and its connections, by one small
  // all-reduce, which all ranks take part in; returns when that is done. Throws c10::Error.
  virtual void Connect(const c10::intrusive_ptr<c10d::Backend>& nccl, int device,
                       std::chrono::milliseconds timeout) = 0;

  // c10d::dump_nccl_trace_json(), as flight_record.h reads it. From any thread; blocks where CUDA
  // does.
  virtual std::string FlightRecord() = 0;

  // Waits until the device has done all that was queued. Throws c10::Error.
  virtual void Synchronize(int device) = 0;

  // An NVTX range of the process, as a profiler shows it; any thread may end it. Needs no device.
  virtual std::uint64_t BeginRange(const char* name) = 0;
  virtual void EndRange(std::uint64_t range) = 0;

  // "CUDA 13.0, driver 13.0, NCCL 2.28.9"; "no driver" without one.
  virtual std::string Versions() const = 0;

  // What ncclGetUniqueId() gives; needs no device. Throws c10::Error.
  virtual std::vector<uint8_t> NcclUniqueId() const = 0;
};

// The one function that the module exports, under this name.
inline constexpr const char* kAcceleratorSymbol = "ddprun_accelerator";
using AcceleratorFunction = Accelerator* (*)(int interface);

// What the installed driver shows to this process, asked of the driver alone: nothing of LibTorch's
// CUDA is loaded.
struct DriverView {
  // UUIDs of the devices. Those of the GPUs, also where one is divided by MIG: NCCL takes two parts
  // of a GPU for one device.
  std::vector<std::string> devices{};
  // Why a driver that is installed shows none, a clause with a next move. Empty without a driver,
  // and where CUDA_VISIBLE_DEVICES hides all devices.
  std::string problem{};
};
DriverView AskDriver();
std::vector<std::string> DriverDevices();
int DriverDeviceCount();

// Opens the module: beside this program, or in ../bin of it. Stays open to the process's end, since
// CUDA cannot be unloaded. To be called before anything asks ATen about CUDA (a batch norm on a CPU
// does, and so does torch::manual_seed): ATen asks only once whether there is a CUDA library.
// Throws std::runtime_error with one sentence that says what is missing.
Accelerator& LoadAccelerator();

}  // namespace ddprun

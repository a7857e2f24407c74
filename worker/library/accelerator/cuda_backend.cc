// SPDX-License-Identifier: Apache-2.0
// Built into libddprun_cuda.so, whose files alone see CUDA and NCCL.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "worker/library/accelerator/accelerator.h"
#include "worker/library/accelerator/cuda_kernels.h"

namespace ddprun {
namespace {

// CUDA and NCCL both count 1000 * major + ..., in different ways.
std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string NcclVersion(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

class CudaStepGraph : public StepGraph {
 public:
  explicit CudaStepGraph(c10::MempoolId_t pool) : pool_(pool) {}

  void Capture(const std::function<void()>& work) override {
    // Work of other threads (a loader's pinned memory, NCCL's watchdog) is not captured, and
    // backward's thread queues on the stream that is captured.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const c10::Error&) {
        // It says that the capture failed; why is being thrown.
      }
      throw;
    }
    graph_.capture_end();
  }

  void Replay() override { graph_.replay(); }

 private:
  const c10::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

class CudaStreamMark : public StreamMark {
 public:
  CudaStreamMark() { event_.record(); }
  bool Passed() const override {
    const c10::cuda::OptionalCUDAGuard guard(event_.device());
    return event_.query();
  }

 private:
  at::cuda::CUDAEvent event_{cudaEventDisableTiming};
};

// A thread's current device is 0 at first, on which a call may make a context (half a gigabyte),
// also one that only asks. So what threads call that have made no device current makes the rank's
// so.
class CudaAccelerator : public Accelerator {
 public:
  int DeviceCount() const override { return c10::cuda::device_count(); }

  void SetDevice(int device) override {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    device_ = device;
  }

  c10::intrusive_ptr<c10d::Backend> MakeNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                             const GroupOptions& group) override {
    // The reduction behind backward must not wait until the kernels of backward leave it room.
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = group.timeout;
    options->group_name = group.group_name;
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, group.rank, group.size,
                                                               std::move(options));
    // Tells NCCL which device a barrier or an ID exchange is for; else it guesses from the rank.
    backend->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(group.device)));
    return backend;
  }

  void UseOwnStream(int device) override {
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(
        /*isHighPriority=*/false, static_cast<c10::DeviceIndex>(device)));
  }

  MakeStepGraph GraphMaker() override {
    return [pool = at::cuda::graph_pool_handle()] { return std::make_unique<CudaStepGraph>(pool); };
  }
  std::unique_ptr<StreamMark> MakeMark() override { return std::make_unique<CudaStreamMark>(); }

  KernelLauncher* Kernels(int device) override {
    const std::scoped_lock lock(kernels_mutex_);
    const auto [place, is_new] = kernels_.try_emplace(device);
    if (is_new) place->second = CudaKernels::Load(device);
    return place->second.get();
  }

  const std::vector<KernelModule>& EmbeddedKernels() const override { return KernelModules(); }

  std::int64_t FreeBytes(int device) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(free);
  }

  std::int64_t HeldBytes(int device) override {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device))
        .reserved_bytes[0]
        .current;
  }

  void OnWait(int mode) override {
    using Mode = c10::cuda::SyncDebugMode;
    c10::cuda::warning_state().set_sync_debug_mode(mode == 2   ? Mode::L_ERROR
                                                   : mode == 1 ? Mode::L_WARN
                                                               : Mode::L_DISABLED);
  }

  void Connect(const c10::intrusive_ptr<c10d::Backend>& nccl, int device,
               std::chrono::milliseconds timeout) override {
    const at::Device on(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    const c10::cuda::CUDAGuard guard(on);  // the calling thread has another current device
    nccl->eagerConnectSingleDevice(on);
    // The communicator alone has no connections yet: NCCL makes them with the first collective.
    std::vector<at::Tensor> tensors{at::zeros({1}, at::TensorOptions(on).dtype(at::kFloat))};
    c10d::AllreduceOptions options;
    options.timeout = timeout;
    nccl->allreduce(tensors, options)->wait();
    c10::cuda::device_synchronize();
  }

  std::string FlightRecord() override {
    const c10::cuda::OptionalCUDAGuard on_device(OwnDevice());
    // It asks events whether they are over, which must not spoil a graph that the main thread is
    // capturing just now.
    const c10::cuda::CUDAStreamCaptureModeGuard guard(cudaStreamCaptureModeThreadLocal);
    return c10d::dump_nccl_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
  }

  void Synchronize(int device) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    c10::cuda::device_synchronize();
  }

  std::uint64_t BeginRange(const char* name) override { return nvtxRangeStartA(name); }
  void EndRange(std::uint64_t range) override { nvtxRangeEnd(range); }

  std::string Versions() const override {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    int nccl = 0;
    TORCH_CHECK(ncclGetVersion(&nccl) == ncclSuccess, "NCCL does not tell its version");
    return "CUDA " + CudaVersion(CUDART_VERSION) + ", " +
           (driver == 0 ? "no driver" : "driver " + CudaVersion(driver)) + ", NCCL " +
           NcclVersion(nccl);
  }

  std::vector<uint8_t> NcclUniqueId() const override {
    ncclUniqueId id;
    const ncclResult_t result = ncclGetUniqueId(&id);
    TORCH_CHECK(result == ncclSuccess, "ncclGetUniqueId failed: ", ncclGetErrorString(result));
    return {id.internal, id.internal + sizeof(id.internal)};
  }

 private:
  std::optional<at::Device> OwnDevice() const {
    const int device = device_;
    if (device < 0) return std::nullopt;
    return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
  }

  std::atomic<int> device_{-1};  // see SetDevice()
  std::mutex kernels_mutex_;
  std::map<int, std::unique_ptr<CudaKernels>> kernels_;  // by device; null: too old
};

}  // namespace
}  // namespace ddprun

extern "C" __attribute__((visibility("default"))) ddprun::Accelerator* ddprun_accelerator(
    int interface) {
  // With the hooks that it has found at the first question, ATen goes on to the process's end.
  if (!at::detail::getCUDAHooks().hasCUDART()) {
    throw std::runtime_error(
        "LibTorch was asked about CUDA before its CUDA library was loaded (torch::manual_seed() "
        "does that, and a batch norm), and knows of none from then on; call ddprun::Main() or "
        "World::Join() first, or choose the CPU");
  }
  static ddprun::CudaAccelerator accelerator;
  return interface == ddprun::kAcceleratorInterface ? &accelerator : nullptr;
}

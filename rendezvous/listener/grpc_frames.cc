// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/grpc_frames.h"

#ifdef DDPRUN_GUARD_FRAMES

#include <grpc/slice.h>

#include <array>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/listener/frame_guard.h"

// gRPC's own types, of which only addresses are used here.
struct grpc_chttp2_transport;
struct grpc_endpoint;
namespace grpc_core {
class ChannelArgs;
}

#define DDPRUN_CREATE "_Z28grpc_create_chttp2_transportRKN9grpc_core11ChannelArgsEP13grpc_endpointb"
#define DDPRUN_READ "_Z24grpc_chttp2_perform_readP21grpc_chttp2_transportRK10grpc_slice"

namespace ddprun {

// gRPC's functions, and those that are called in their place.
grpc_chttp2_transport* RealCreate(const grpc_core::ChannelArgs& arguments, grpc_endpoint* endpoint,
                                  bool is_client) __asm__("__real_" DDPRUN_CREATE);
grpc_chttp2_transport* WrappedCreate(const grpc_core::ChannelArgs& arguments,
                                     grpc_endpoint* endpoint,
                                     bool is_client) __asm__("__wrap_" DDPRUN_CREATE);
absl::Status RealRead(grpc_chttp2_transport* transport,
                      const grpc_slice& bytes) __asm__("__real_" DDPRUN_READ);
absl::Status WrappedRead(grpc_chttp2_transport* transport,
                         const grpc_slice& bytes) __asm__("__wrap_" DDPRUN_READ);

namespace {

// The guards of the connections by their address. One that is gone leaves its guard until another
// connection has its address: some hundred bytes for each of the most that ever were at once.
class Guards {
 public:
  void Begin(const grpc_chttp2_transport* transport, bool is_client) {
    Shard& shard = ShardOf(transport);
    absl::MutexLock lock(&shard.mutex);
    if (is_client) {
      shard.guards.erase(transport);
    } else {
      shard.guards.insert_or_assign(transport,
                                    std::make_unique<FrameGuard>(std::chrono::steady_clock::now()));
    }
  }

  const char* Feed(const grpc_chttp2_transport* transport, absl::string_view bytes) {
    Shard& shard = ShardOf(transport);
    absl::MutexLock lock(&shard.mutex);
    const auto it = shard.guards.find(transport);
    return it == shard.guards.end() ? nullptr
                                    : it->second->Feed(bytes, std::chrono::steady_clock::now());
  }

 private:
  struct Shard {
    absl::Mutex mutex;
    absl::flat_hash_map<const grpc_chttp2_transport*, std::unique_ptr<FrameGuard>> guards
        ABSL_GUARDED_BY(mutex);
  };
  static constexpr std::size_t kShards = 16;

  Shard& ShardOf(const grpc_chttp2_transport* transport) {
    return shards_[(reinterpret_cast<std::uintptr_t>(transport) >> 12) % kShards];
  }

  std::array<Shard, kShards> shards_;
};

// Never destroyed: gRPC's threads may outlive static objects.
Guards& AllGuards() {
  static Guards* const guards = new Guards;
  return *guards;
}

}  // namespace

grpc_chttp2_transport* WrappedCreate(const grpc_core::ChannelArgs& arguments,
                                     grpc_endpoint* endpoint, bool is_client) {
  grpc_chttp2_transport* const transport = RealCreate(arguments, endpoint, is_client);
  AllGuards().Begin(transport, is_client);
  return transport;
}

absl::Status WrappedRead(grpc_chttp2_transport* transport, const grpc_slice& bytes) {
  const absl::string_view view(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(bytes)),
                               GRPC_SLICE_LENGTH(bytes));
  if (const char* const sentence = AllGuards().Feed(transport, view)) {
    return absl::ResourceExhaustedError(sentence);
  }
  return RealRead(transport, bytes);
}

bool GuardsFrames() { return true; }

}  // namespace ddprun

#else

namespace ddprun {

bool GuardsFrames() { return false; }

}  // namespace ddprun

#endif

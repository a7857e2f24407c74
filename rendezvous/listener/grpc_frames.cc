// SPDX-License-Identifier: Apache-2.0
// Puts a FrameGuard between the decrypted bytes of each connection that this process's gRPC servers
// have, and gRPC's parser.
//
// gRPC 1.51 has no hook for that, and Debian and Ubuntu package no newer gRPC. So the linker
// replaces the two functions by which gRPC creates a connection and reads from it (ld's --wrap);
// the build stops where gRPC no longer has them so (proto/cmake/wrapped_symbols.cmake). Where gRPC
// is a shared library there is no guard.
#include <grpc/slice.h>

#include <chrono>
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

// The guards of the servers' connections by their address. One that is gone leaves its guard until
// another connection has its address: some hundred bytes for each of the most that ever were at
// once.
class Guards {
 public:
  void Begin(const grpc_chttp2_transport* transport, bool is_client) {
    absl::MutexLock lock(&mutex_);
    if (is_client) {
      guards_.erase(transport);
    } else {
      guards_.insert_or_assign(transport,
                               std::make_unique<FrameGuard>(std::chrono::steady_clock::now()));
    }
  }

  // Null: of a client. A connection's reads come one after another, so its guard needs no lock.
  FrameGuard* Find(const grpc_chttp2_transport* transport) {
    absl::ReaderMutexLock lock(&mutex_);
    const auto it = guards_.find(transport);
    return it == guards_.end() ? nullptr : it->second.get();
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<const grpc_chttp2_transport*, std::unique_ptr<FrameGuard>> guards_
      ABSL_GUARDED_BY(mutex_);
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
  FrameGuard* const guard = AllGuards().Find(transport);
  const char* const sentence =
      guard == nullptr ? nullptr : guard->Feed(view, std::chrono::steady_clock::now());
  return sentence == nullptr ? RealRead(transport, bytes) : absl::ResourceExhaustedError(sentence);
}

}  // namespace ddprun

// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/introspection.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <memory>
#include <vector>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// For this server only: gRPC's own function enables reflection for every server of the process.
class WithReflection final : public grpc::ServerBuilderOption {
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }
};

}  // namespace

void AddHealthAndReflection(grpc::ServerBuilder& builder) {
  // Applies to all servers of the process and may not be set while another is built: once.
  static const bool enabled = [] {
    grpc::EnableDefaultHealthCheckService(true);
    return true;
  }();
  (void)enabled;
  builder.SetOption(std::make_unique<WithReflection>());
  // Reflection is gRPC 1.51's only service here that holds a thread for each of its streams.
  grpc::ResourceQuota quota("reflection");
  quota.SetMaxThreads(kReflectionThreadsMax);
  builder.SetResourceQuota(quota);
}

void SayServing(grpc::Server& server) {
  grpc::HealthCheckServiceInterface* const health = server.GetHealthCheckService();
  if (health == nullptr) return;
  for (const char* const name :
       {v1::Rendezvous::service_full_name(), v1::Store::service_full_name()}) {
    health->SetServingStatus(name, true);
  }
}

}  // namespace ddprun

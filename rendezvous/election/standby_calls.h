// SPDX-License-Identifier: Apache-2.0
// The calls between services of one run: service Standby of proto/ddprun.proto.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/election/copied_journal.h"

namespace ddprun {

// A kind that is not known here counts as records.
CopyKind KindOf(v1::JournalCopy::Kind kind);

// What the calls are answered from. Called on gRPC threads; must not block.
class StandbyRole {
 public:
  struct Standing {
    std::uint64_t term = 0;  // of the journal that it has or writes; 0: none
    bool leads = false;
  };

  virtual ~StandbyRole() = default;
  virtual Standing standing() = 0;
  // Null: it stands by.
  virtual std::shared_ptr<CopiedJournal> journal() = 0;
  // A copy has been attached to the journal.
  virtual void OnCopy() = 0;
  // Returns what happens now, as a sentence. FAILED_PRECONDITION.
  virtual absl::StatusOr<std::string> Promote(const std::string& by, bool force) = 0;
};

class StandbyCalls final : public v1::Standby::CallbackService {
 public:
  // `role` outlives the server that this is registered with.
  explicit StandbyCalls(StandbyRole& role) : role_(role) {}

  grpc::ServerBidiReactor<v1::CopyReport, v1::JournalCopy>* CopyJournal(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Promote(grpc::CallbackServerContext* context,
                                    const v1::PromoteRequest* request,
                                    v1::PromoteAnswer* answer) override;
  grpc::ServerUnaryReactor* GetStanding(grpc::CallbackServerContext* context,
                                        const v1::StandingRequest* request,
                                        v1::Standing* answer) override;

 private:
  class Copy;

  StandbyRole& role_;
};

}  // namespace ddprun

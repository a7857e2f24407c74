// SPDX-License-Identifier: Apache-2.0
// The run's key-value store as a c10d::Store, so that process groups exchange the NCCL unique ID
// and Gloo's addresses through the gRPC service. The only place of this room where a Status becomes
// an exception.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/tcpstore/store_client.h"

namespace ddprun {

// All verbs of c10d::Store, with TCPStore's meanings where it and HashStore differ. Threadsafe but
// for setTimeout(), as c10d's are: a waiting call holds up no other thread. Errors:
//   c10::DistStoreError       a wait's time is over (the message names the keys that are missing),
//   a value that is not
//                             a number, a limit of the service, or a round that is over
//   c10::DistQueueEmptyError  queuePop() without waiting, and nothing is there
//   c10::DistNetworkError     the connection to the agent is gone
class AgentStore : public c10d::Store {
 public:
  explicit AgentStore(std::shared_ptr<StoreClient> client,
                      std::chrono::milliseconds timeout = kDefaultTimeout);

  // Connects to an agent; throws c10::DistNetworkError if it is not reached in time.
  static c10::intrusive_ptr<AgentStore> Connect(StoreClient::Options options,
                                                std::chrono::milliseconds timeout);

  // With a timeout of its own, over the same connection.
  c10::intrusive_ptr<c10d::Store> clone() override;

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }
  void queuePush(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> queuePop(const std::string& key, bool block) override;
  int64_t queueLen(const std::string& key) override;
  std::vector<std::string> listKeys() override;

 private:
  // Throws what the answer's status stands for.
  StoreResult Call(StoreOp op) const;

  const std::shared_ptr<StoreClient> client_;
};

}  // namespace ddprun

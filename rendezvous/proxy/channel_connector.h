// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "rendezvous/proxy/store_link.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// Opens links to a service in another process.
std::shared_ptr<StoreConnector> MakeStoreConnector(std::shared_ptr<ServiceChannel> channel);

}  // namespace ddprun

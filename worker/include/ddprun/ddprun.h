// SPDX-License-Identifier: Apache-2.0
// All of libddprun: distributed data parallel training with LibTorch. What detail/ has is for these
// headers, libddprun and `train` alone.
#pragma once

#include "ddprun/checkpoints.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/epoch_sampler.h"
#include "ddprun/errors.h"
#include "ddprun/main.h"
#include "ddprun/sync_batch_norm.h"
#include "ddprun/version.h"
#include "ddprun/world.h"
#include "ddprun/zero_redundancy_optimizer.h"

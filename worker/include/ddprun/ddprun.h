// SPDX-License-Identifier: Apache-2.0
// All of libddprun: distributed data parallel training with LibTorch.
#pragma once

#include "ddprun/checkpoints.h"
#include "ddprun/checksum.h"
#include "ddprun/choices.h"
#include "ddprun/collectives.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/epoch_sampler.h"
#include "ddprun/errors.h"
#include "ddprun/failure.h"
#include "ddprun/interrupt.h"
#include "ddprun/main.h"
#include "ddprun/shm_notes.h"
#include "ddprun/step_vote.h"
#include "ddprun/sync_batch_norm.h"
#include "ddprun/training_position.h"
#include "ddprun/version.h"
#include "ddprun/world.h"
#include "ddprun/zero_redundancy_optimizer.h"

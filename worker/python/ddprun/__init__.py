# SPDX-License-Identifier: Apache-2.0
"""For Python programs that ddprun runs: what they may tell it, what it tells them, and how they go on when a peer dies; and for those
that start a run (launch). Only the standard library is needed (EpochBatches, rounds: torch; a callback: its package). A program that
runs without ddprun goes on as ever: nothing here but launch fails for want of it."""

from .callbacks import accelerate_tracker, lightning_callback, transformers_callback
from .failure_record import record
from .kept_accelerate import accelerate_rounds
from .kept_lightning import lightning_fit
from .kept_trainer import transformers_train
from .launch import LaunchError, launch
from .notices import notice_saved, on_notice
from .notify import progress
from .round_client import Rounds
from .rounds import Round, RoundBroken, rounds
from .sampler import EpochBatches

__all__ = [
    "EpochBatches",
    "LaunchError",
    "Round",
    "RoundBroken",
    "Rounds",
    "accelerate_rounds",
    "accelerate_tracker",
    "launch",
    "lightning_callback",
    "lightning_fit",
    "notice_saved",
    "on_notice",
    "progress",
    "record",
    "rounds",
    "transformers_callback",
    "transformers_train",
]

# Where find_package(ddprun) finds the library that a wheel brings: cmake -DCMAKE_PREFIX_PATH="$(python -c 'import ddprun;
# print(ddprun.cmake_prefix_path)')", as torch.utils.cmake_prefix_path is for torch.
cmake_prefix_path = __path__[0]

# As programs catch them: ddprun.launch and ddprun.rounds are functions here, and no modules.
for _error in (LaunchError, RoundBroken):
    _error.__module__ = __name__

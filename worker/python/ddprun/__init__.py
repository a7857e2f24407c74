# SPDX-License-Identifier: Apache-2.0
"""For Python programs that ddprun runs: what they may tell it, what it tells them, and how they go on when a peer dies. Only the
standard library is needed (EpochBatches, rounds: torch; a callback: its package). A program that runs without ddprun goes on as ever:
nothing here fails for want of it."""

from .callbacks import accelerate_tracker, lightning_callback, transformers_callback
from .failure_record import record
from .notices import on_notice
from .notify import progress
from .round_client import Rounds
from .rounds import Round, RoundBroken, rounds
from .sampler import EpochBatches

__all__ = [
    "EpochBatches",
    "Round",
    "RoundBroken",
    "Rounds",
    "accelerate_tracker",
    "lightning_callback",
    "on_notice",
    "progress",
    "record",
    "rounds",
    "transformers_callback",
]

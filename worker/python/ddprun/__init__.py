# SPDX-License-Identifier: Apache-2.0
"""For Python programs that ddprun runs: what they may tell it, and how they go on when a peer dies. Only the standard library is
needed (EpochBatches: torch). A program that runs without ddprun goes on as ever: nothing here fails for want of it."""

from .notify import progress
from .rounds import Rounds
from .sampler import EpochBatches

__all__ = ["EpochBatches", "Rounds", "progress"]

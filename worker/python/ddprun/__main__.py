# SPDX-License-Identifier: Apache-2.0
"""python -m ddprun: the launcher."""

from .programs import ddprun

ddprun()

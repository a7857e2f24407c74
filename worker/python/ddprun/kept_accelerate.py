# SPDX-License-Identifier: Apache-2.0
"""A loop with accelerate that outlives the death of a rank. Needs accelerate."""

from .rounds import rounds


def accelerate_rounds(accelerator, *state, step=0):
    """rounds() for a program whose Accelerator makes the process group:

        for round in ddprun.accelerate_rounds(accelerator, model, optimizer, batches):
            with round:
                batches.set_world(round.rank, round.world_size)
                ddp, prepared = accelerator.prepare(model, optimizer)
                ...
                    round.end_step()

    `state`: what prepare() gets, not what it returns, which belongs to one round. The accelerator has rank and world size of the round."""
    backend = "gloo" if accelerator.device.type == "cpu" else None
    for round in rounds(*state, step=step, backend=backend, _after_group=True):
        _enter_world(accelerator)
        yield round


def _enter_world(accelerator):
    from accelerate.state import AcceleratorState

    state = accelerator.state
    own = {"mixed_precision": state._mixed_precision, "cpu": state._cpu, "dynamo_plugin": state.dynamo_plugin}
    AcceleratorState._reset_state(reset_partial_state=True)
    AcceleratorState(**own, _from_accelerator=True)  # all instances share what it has
    accelerator.free_memory()

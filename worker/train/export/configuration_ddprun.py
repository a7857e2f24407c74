# SPDX-License-Identifier: Apache-2.0
"""What a model that ddprun's `train` made is like; written beside it by `train export --format hf`."""

from transformers import PretrainedConfig


class DdprunConfig(PretrainedConfig):
    model_type = "ddprun"

    def __init__(
        self,
        model_name="netresdeep",
        shared_blocks=False,
        width=1.0,
        num_channels=3,
        image_height=32,
        image_width=32,
        **kwargs,
    ):
        self.model_name = model_name
        self.shared_blocks = shared_blocks
        self.width = width
        self.num_channels = num_channels
        self.image_height = image_height
        self.image_width = image_width
        super().__init__(**kwargs)

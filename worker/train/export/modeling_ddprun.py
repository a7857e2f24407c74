# SPDX-License-Identifier: Apache-2.0
"""The models of ddprun's `train` that transformers does not have; written beside one by `train export --format hf`."""

import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention

from .configuration_ddprun import DdprunConfig


class Linear(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc = nn.Linear(config.num_channels * config.image_height * config.image_width, config.num_labels)

    def forward(self, x):
        return self.fc(x.flatten(1))


class SimpleCnn(nn.Module):
    def __init__(self, config):
        super().__init__()
        height, width = (((side - 4) // 2 - 4) // 2 for side in (config.image_height, config.image_width))
        self.conv1 = nn.Conv2d(config.num_channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * height * width, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, config.num_labels)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.batch_norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.batch_norm(self.conv(x))) + x


class NetResDeep(nn.Module):
    def __init__(self, config, channels=32, blocks=10):
        super().__init__()
        self.conv1 = nn.Conv2d(config.num_channels, channels, 3, padding=1)
        first = ResBlock(channels)
        others = (first if config.shared_blocks else ResBlock(channels) for _ in range(blocks - 1))
        self.resblocks = nn.Sequential(first, *others)
        self.fc1 = nn.Linear((config.image_height // 4) * (config.image_width // 4) * channels, 32)
        self.fc2 = nn.Linear(32, config.num_labels)

    def forward(self, x):
        x = self.resblocks(F.max_pool2d(F.relu(self.conv1(x)), 2))
        return self.fc2(F.relu(self.fc1(F.max_pool2d(x, 2).flatten(1))))


class ConvGroup(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Airbench(nn.Module):
    """CifarNet of github.com/KellerJordan/cifar10-airbench."""

    def __init__(self, config):
        super().__init__()
        narrow, wide = (max(1, int(channels * config.width + 0.5)) for channels in (64, 256))
        whitened = 8 * config.num_channels
        self.whiten = nn.Conv2d(config.num_channels, whitened, 2)
        self.layers = nn.Sequential(
            nn.GELU(),
            ConvGroup(whitened, narrow),
            ConvGroup(narrow, wide),
            ConvGroup(wide, wide),
            nn.AdaptiveMaxPool2d(1),
        )
        self.head = nn.Linear(wide, config.num_labels, bias=False)

    def forward(self, x):
        x = self.layers(self.whiten(x)).flatten(1)
        return self.head(x) / x.size(1)


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class ResidualBlock(nn.Module):
    """Convolutions of (kernel, stride, outputs) as conv1, bn1, ..., and the input added to what they give."""

    def __init__(self, inputs, convolutions, stride):
        super().__init__()
        self.depth = len(convolutions)
        outputs = inputs
        for number, (kernel, own_stride, width) in enumerate(convolutions, start=1):
            setattr(self, f"conv{number}", conv(outputs, width, kernel, own_stride))
            setattr(self, f"bn{number}", nn.BatchNorm2d(width))
            outputs = width
        self.downsample = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = x
        for number in range(1, self.depth + 1):
            out = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(out))
            if number < self.depth:
                out = F.relu(out)
        return F.relu(out + self.downsample(x))


class ResNet(nn.Module):
    """torchvision's, with a 3x3 convolution of stride 1 and no max-pool as stem."""

    def __init__(self, config, bottleneck, depths):
        super().__init__()
        self.conv1 = conv(config.num_channels, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, depth in enumerate(depths):
            width = 64 * 2**i
            blocks = []
            for j in range(depth):
                stride = 2 if i > 0 and j == 0 else 1
                if bottleneck:
                    convolutions = [(1, 1, width), (3, stride, width), (1, 1, 4 * width)]
                else:
                    convolutions = [(3, stride, width), (3, 1, width)]
                blocks.append(ResidualBlock(inputs, convolutions, stride))
                inputs = convolutions[-1][2]
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, config.num_labels)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


MODELS = {
    "linear": Linear,
    "simple-cnn": SimpleCnn,
    "netresdeep": NetResDeep,
    "airbench": Airbench,
    "resnet18": lambda config: ResNet(config, bottleneck=False, depths=(2, 2, 2, 2)),
    "resnet34": lambda config: ResNet(config, bottleneck=False, depths=(3, 4, 6, 3)),
    "resnet50": lambda config: ResNet(config, bottleneck=True, depths=(3, 4, 6, 3)),
}


class DdprunForImageClassification(PreTrainedModel):
    config_class = DdprunConfig
    base_model_prefix = "model"
    main_input_name = "pixel_values"

    def __init__(self, config):
        super().__init__(config)
        self.model = MODELS[config.model_name](config)
        self.post_init()

    def _init_weights(self, module):
        """PyTorch's own are kept: all weights are in the file."""

    def save_pretrained(self, save_directory, is_main_process=True, state_dict=None, **kwargs):
        """As PreTrainedModel does, but a block that is used ten times is written ten times: safetensors takes no
        tensor under two names, and `train --init-from` reads all ten."""
        state_dict = self.state_dict() if state_dict is None else state_dict
        copies = {name: tensor.clone() for name, tensor in state_dict.items()}
        return super().save_pretrained(save_directory, is_main_process, state_dict=copies, **kwargs)

    def forward(self, pixel_values, labels=None, return_dict=None, **kwargs):
        logits = self.model(pixel_values)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits)

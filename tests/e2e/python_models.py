# SPDX-License-Identifier: Apache-2.0
"""The models of worker/ as one would write them in Python, to compare with and to load what `train` wrote into."""

import torch
import torch.nn.functional as F
from python_speedrun import Airbench
from torch import nn


class Linear(nn.Module):
    def __init__(self, values=3 * 32 * 32, classes=10):
        super().__init__()
        self.fc = nn.Linear(values, classes)

    def forward(self, x):
        return self.fc(x.flatten(1))


class SimpleCnn(nn.Module):
    """PyTorch's CIFAR-10 tutorial."""

    def __init__(self, classes=10, in_channels=3):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.batch_norm = nn.BatchNorm2d(channels)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        nn.init.constant_(self.batch_norm.weight, 0.5)
        nn.init.zeros_(self.batch_norm.bias)

    def forward(self, x):
        return torch.relu(self.batch_norm(self.conv(x))) + x


class NetResDeep(nn.Module):
    def __init__(self, classes=10, in_channels=3, shared_blocks=False, channels=32, blocks=10):
        super().__init__()
        self.channels = channels
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=3, padding=1)
        if shared_blocks:
            self.resblocks = nn.Sequential(*(blocks * [ResBlock(channels)]))
        else:
            self.resblocks = nn.Sequential(*(ResBlock(channels) for _ in range(blocks)))
        self.fc1 = nn.Linear(8 * 8 * channels, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x):
        out = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        out = self.resblocks(out)
        out = F.max_pool2d(out, 2)
        out = out.reshape(-1, 8 * 8 * self.channels)
        out = torch.relu(self.fc1(out))
        return self.fc2(out)


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def shortcut(inputs, outputs, stride):
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = shortcut(inputs, width * self.expansion, stride)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return torch.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """torchvision's ResNet; the stem "cifar" is a 3x3 convolution of stride 1 without a max-pool."""

    def __init__(self, block, depths, classes=10, in_channels=3, stem="cifar"):
        super().__init__()
        self.conv1 = conv(in_channels, 64, 7, 2) if stem == "imagenet" else conv(in_channels, 64, 3)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "imagenet" else nn.Identity()
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, depth in enumerate(depths):
            layer = []
            for j in range(depth):
                layer.append(block(inputs, 64 * 2**i, 2 if i > 0 and j == 0 else 1))
                inputs = 64 * 2**i * block.expansion
            setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        out = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            out = layer(out)
        return self.fc(F.adaptive_avg_pool2d(out, 1).flatten(1))


def make_model(name, shared_blocks=False, classes=10, stem="cifar"):
    if name == "linear":
        return Linear(classes=classes)
    if name == "simple-cnn":
        return SimpleCnn(classes=classes)
    if name == "netresdeep":
        return NetResDeep(classes=classes, shared_blocks=shared_blocks)
    if name == "airbench":
        return Airbench(classes=classes)
    block, depths = {
        "resnet18": (BasicBlock, (2, 2, 2, 2)),
        "resnet34": (BasicBlock, (3, 4, 6, 3)),
        "resnet50": (Bottleneck, (3, 4, 6, 3)),
    }[name]
    return ResNet(block, depths, classes=classes, stem=stem)

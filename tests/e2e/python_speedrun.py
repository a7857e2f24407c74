# SPDX-License-Identifier: Apache-2.0
"""`train --recipe speedrun` as one would write it in plain PyTorch: the model, Muon, how images are varied and looked at.

After Keller Jordan's airbench94_muon (github.com/KellerJordan/cifar10-airbench), in our own words: what
parity_speedrun.py compares with number by number, and what tests/bench/speedrun_peer.py trains.
"""

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 32
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class ConvGroup(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
        for conv in (self.conv1, self.conv2):
            nn.init.dirac_(conv.weight.data[: conv.in_channels])
        for norm in (self.norm1, self.norm2):
            norm.weight.requires_grad = False

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Airbench(nn.Module):
    def __init__(self, classes=10, width=1.0):
        super().__init__()
        narrow, wide = (max(1, int(channels * width + 0.5)) for channels in (64, 256))
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad = False
        groups = ConvGroup(24, narrow), ConvGroup(narrow, wide), ConvGroup(wide, wide)
        self.layers = nn.Sequential(nn.GELU(), *groups, nn.MaxPool2d(3))
        self.head = nn.Linear(wide, classes, bias=False)
        self.head.weight.data /= self.head.weight.data.std()
        self.trains_whitening = True

    def forward(self, x):
        bias = self.whiten.bias if self.trains_whitening else self.whiten.bias.detach()
        x = self.layers(F.conv2d(x, self.whiten.weight, bias)).flatten(1)
        return self.head(x) / x.size(1)


@torch.no_grad()
def whitening_filters(images, eps=5e-4):
    """24 x 3 x 2 x 2: the eigenvectors of the 2x2 patches' covariance over the root of their eigenvalues, and negatives.
    Those of an eigenvalue of nothing (grey images have 8) give way to the others once more."""
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)
    values, vectors = torch.linalg.eigh((patches.T @ patches / len(patches)).double().cpu())
    kept = int((values > 1e-6 * values.max()).sum())
    order = 11 - (11 - torch.arange(12)) % kept
    filters = (vectors.T[order] / (values[order, None] + eps).sqrt()).float().view(12, 3, 2, 2)
    return torch.cat([filters, -filters])


def orthogonal(matrix, dtype):
    a, b, c = NEWTON_SCHULZ
    wide = matrix.size(0) <= matrix.size(1)
    x = (matrix if wide else matrix.T).to(dtype)
    x = x / (x.norm() + 1e-7)
    for _ in range(3):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x if wide else x.T


class Muon(torch.optim.Optimizer):
    """For convolutions' filters."""

    def __init__(self, parameters, lr, momentum, dtype=torch.float32):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})
        self.dtype = dtype

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).add_(p.grad)
                direction = p.grad + group["momentum"] * velocity
                p.mul_(len(p) ** 0.5 / p.norm())
                update = orthogonal(direction.reshape(len(p), -1), self.dtype).view(p.shape)
                p.sub_(group["lr"] * update.to(p.dtype))


class SpeedrunOptimizer:
    """Muon and SGD with the recipe's rates, which are for a sum over the batch. The gradients are of a mean, times `scale`."""

    def __init__(self, model, steps, steps_per_epoch, batch, whiten_epochs=3, dtype=torch.float32, scale=1):
        self.steps, self.whiten_steps, self.step_count = steps, round(whiten_epochs * steps_per_epoch), 0
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        filters = [p for p in parameters.values() if p.dim() == 4]
        norms = [p for name, p in parameters.items() if "norm" in name]
        decay, bias_lr, head_lr = 0.004, 0.053 * batch / scale, 0.67 * batch / scale
        groups = [
            {"params": [model.whiten.bias], "lr": bias_lr, "weight_decay": decay / bias_lr},
            {"params": norms, "lr": bias_lr, "weight_decay": decay / bias_lr},
            {"params": [model.head.weight], "lr": head_lr, "weight_decay": decay / head_lr},
        ]
        self.sgd = torch.optim.SGD(groups, lr=bias_lr, momentum=0.85, nesterov=True)
        self.muon = Muon(filters, 0.24, 0.6, dtype)
        for group in self.sgd.param_groups + self.muon.param_groups:
            group["peak"] = group["lr"]

    def trains_whitening(self):
        return self.step_count < self.whiten_steps

    def step(self):
        left = 1 - self.step_count / self.steps
        self.sgd.param_groups[0]["lr"] = self.sgd.param_groups[0]["peak"] * (1 - self.step_count / max(1, self.whiten_steps))
        for group in self.sgd.param_groups[1:] + self.muon.param_groups:
            group["lr"] = group["peak"] * left
        self.sgd.step()
        self.muon.step()
        self.step_count += 1

    def zero_grad(self):
        self.sgd.zero_grad()
        self.muon.zero_grad()


def cut(padded, shift_y, shift_x, mirrored):
    """Images out of theirs of 2 more pixels on each side (N x C x 36 x 36), each by its own numbers (N)."""
    steps = torch.arange(SIDE, device=padded.device)
    rows = (2 + shift_y)[:, None] + steps
    columns = (2 + shift_x)[:, None] + torch.where(mirrored[:, None], SIDE - 1 - steps, steps)
    images = torch.arange(len(padded), device=padded.device)
    # Advanced indices around a slice: N x 32 x 32 x C, which is how channels-last lies.
    return padded[images[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def six_views(model, images):
    """airbench's test-time augmentation: mirrored, and moved by one pixel up and left, and down and right."""

    def both(views):
        return 0.5 * model(views) + 0.5 * model(views.flip(3))

    padded = F.pad(images, (1, 1, 1, 1), mode="reflect")
    moved = [padded[:, :, i : i + SIDE, i : i + SIDE].contiguous(memory_format=torch.channels_last) for i in (0, 2)]
    return 0.5 * both(images) + 0.25 * both(moved[0]) + 0.25 * both(moved[1])

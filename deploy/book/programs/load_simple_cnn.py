# SPDX-License-Identifier: Apache-2.0
import sys

import torch
from torch import nn


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1)))))
        return self.fc3(x)


net = SimpleCnn()
net.load_state_dict(torch.load(sys.argv[1]))
print(f"loaded {sum(p.numel() for p in net.parameters())} parameters; logits: {tuple(net(torch.zeros(1, 3, 32, 32)).shape)}")

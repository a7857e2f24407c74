# SPDX-License-Identifier: Apache-2.0
import torch
import transformers


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


rows = [{"x": (x := torch.randn(8)), "labels": x.sum().reshape(1)} for _ in range(256)]
arguments = transformers.TrainingArguments(
    output_dir="out", per_device_train_batch_size=16, max_steps=8, save_steps=4, report_to=[], disable_tqdm=True
)
trainer = transformers.Trainer(model=Net(), args=arguments, train_dataset=rows)
trainer.train()
print(f"rank {arguments.process_index} of {arguments.world_size}: step {trainer.state.global_step}")

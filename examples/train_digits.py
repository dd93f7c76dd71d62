"""A single-card training script as Ascend's migration guide writes it, on handwritten digits.

What a GPU script needs to run on npu is marked by its comment `npu:`; the rest is any PyTorch
training loop. It runs on the emulated device as it would on a card:

    NPU_CORE=910A python examples/train_digits.py --amp O2 --loss-scale dynamic

--amp O1  autocast: matrix products and convolutions in fp16, weights in fp32
--amp O2  the model in fp16 but for its batch norms, fp32 master weights in the optimizer
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import torch
import torch.npu  # npu: the device's module
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRAIN, BATCH = 1437, 64


class Net(nn.Module):
    """Two convolutions with batch norm and a linear head for 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


class MasterWeights:
    """O2: a half model whose optimizer steps on fp32 copies of its parameters."""

    def __init__(self, model: nn.Module) -> None:
        model.half()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.float()
        self.params = list(model.parameters())
        self.masters = [p.detach().float().clone().requires_grad_() for p in self.params]

    def take_gradients(self) -> None:
        """Move the gradients of the model to the masters, in fp32."""
        for param, master in zip(self.params, self.masters, strict=True):
            master.grad = param.grad.float()
            param.grad = None

    @torch.no_grad()
    def give_weights(self) -> None:
        """Write the masters back into the model."""
        for param, master in zip(self.params, self.masters, strict=True):
            param.copy_(master)


def loaders() -> tuple[DataLoader, DataLoader]:
    """Batches for training and for validation."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    targets = torch.tensor(digits.target)
    train = TensorDataset(images[:TRAIN], targets[:TRAIN])
    # npu: drop_last, because another batch size would compile every operator anew
    return (
        DataLoader(train, BATCH, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(images[TRAIN:], targets[TRAIN:]), BATCH),
    )


def scaler_of(scale: str) -> torch.npu.amp.GradScaler:
    """A static scale never changes; a dynamic one skips steps that overflowed, and adapts."""
    if scale == "dynamic":
        return torch.npu.amp.GradScaler()
    return torch.npu.amp.GradScaler(init_scale=float(scale), dynamic=False)


def accuracy(model: nn.Module, loader: DataLoader, device: str, half: bool) -> float:
    """Share of the images whose digit the model names, in percent."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, target in loader:
            images = images.to(device, non_blocking=True)
            output = model(images.half() if half else images)
            right += (output.argmax(1).cpu() == target).sum().item()
            total += len(target)
    return 100 * right / total


def main() -> None:
    """Train, save a checkpoint every epoch, print the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="npu:0")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--amp", choices=("none", "O1", "O2"), default="none")
    parser.add_argument("--loss-scale", default="128.0", help="a number, or dynamic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="file to write after each epoch")
    parser.add_argument("--resume", type=Path, help="checkpoint to go on from")
    parser.add_argument("--profile", action="store_true", help="print what the first step costs")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = args.device
    torch.npu.set_device(device)  # npu: instead of torch.cuda.set_device

    train, held_out = loaders()
    model = Net().to(device)
    half = args.amp == "O2"
    masters = MasterWeights(model) if half else None
    optimizer = torch.optim.SGD(
        masters.masters if masters else model.parameters(), args.lr, momentum=0.9
    )
    scaler = scaler_of(args.loss_scale) if args.amp != "none" else None
    criterion = nn.CrossEntropyLoss().to(device)
    first = 0

    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device)  # npu: map_location is npu:0
        first = checkpoint["epoch"]
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        if scaler:
            scaler.load_state_dict(checkpoint["scaler"])
        if masters:
            with torch.no_grad():
                for master, saved in zip(masters.masters, checkpoint["masters"], strict=True):
                    master.copy_(saved)
        torch.set_rng_state(checkpoint["rng"].cpu())

    for epoch in range(first, args.epochs):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * 0.1 ** (epoch // 6)
        model.train()
        start = time.perf_counter()
        for step, (images, target) in enumerate(train):
            images = images.to(device, non_blocking=True)
            target = target.to(torch.int32).to(device, non_blocking=True)  # npu: int32 targets
            first_step = args.profile and epoch == first and step == 0
            # npu: use_npu instead of use_cuda
            with (
                torch.autograd.profiler.profile(use_npu=True)
                if first_step
                else contextlib.nullcontext()
            ) as profile:
                with torch.autocast("npu", enabled=args.amp == "O1"):
                    output = model(images.half() if half else images)
                    loss = criterion(output.float(), target)
                optimizer.zero_grad()
                if scaler:
                    scaler.scale(loss).backward()
                    if masters:
                        masters.take_gradients()
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    loss.backward()
                    optimizer.step()
                if masters:
                    masters.give_weights()
            if first_step:
                print(profile.key_averages().table(sort_by="cpu_time_total", row_limit=8))
        torch.npu.current_stream().synchronize()  # npu: before the clock is read
        seconds = time.perf_counter() - start
        top1 = accuracy(model, held_out, device, half)
        print(f"epoch {epoch} loss {loss.item():.4f} acc1 {top1:.2f} seconds {seconds:.1f}")
        if args.checkpoint:
            # npu: a checkpoint is written in a base format
            state = {k: v.npu_format_cast(0 if v.dim() == 4 else 2) if v.dim() else v
                     for k, v in model.state_dict().items()}  # fmt: skip
            torch.save(
                {
                    "epoch": epoch + 1,
                    "model": state,
                    "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict() if scaler else None,
                    "masters": masters.masters if masters else None,
                    "rng": torch.get_rng_state(),
                },
                args.checkpoint,
            )


if __name__ == "__main__":
    main()

"""The training of ../fashion_mnist as a plain script.

python train.py --lr 0.05             alone: prints a line after each epoch
hopyard run experiment.yaml           a search over configurations

The line `hopyard.report` makes it a program of Hopyard. The lines marked with (*) are optional: with them a job that
leaves its slot continues where it stopped; without them it starts from scratch.
"""

import argparse
import gzip
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import hopyard

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--decay", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=1e-3)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--channels", type=int, default=16)
parser.add_argument("--data", type=Path, default=os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
options = parser.parse_args()

if not options.data.is_dir():
    sys.exit(f"no {options.data}: on Debian and Ubuntu run  sudo apt-get install dataset-fashion-mnist")
with gzip.open(options.data / "train-images-idx3-ubyte.gz") as file:
    pixels = np.frombuffer(file.read(16 + 7000 * 784), np.uint8, offset=16)
with gzip.open(options.data / "train-labels-idx1-ubyte.gz") as file:
    labels = torch.from_numpy(np.frombuffer(file.read(8 + 7000), np.uint8, offset=8).astype(np.int64))
# 28 x 28 pixels to 14 x 14, with a mean near 0 and a standard deviation near 1.
small = pixels.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5), dtype=np.float32)
images = torch.from_numpy((small / 255 - np.float32(0.29)) / np.float32(0.33))

torch.manual_seed(hopyard.seed())
torch.set_num_threads(1)  # the images are too small for several threads
model = nn.Sequential(
    nn.Conv2d(1, options.channels, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(options.channels, 2 * options.channels, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(options.dropout),
    nn.Linear(2 * options.channels * 3 * 3, 10),
)
optimizer = torch.optim.SGD(
    model.parameters(), lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, options.decay)

first = 0
if (saved := hopyard.checkpoint()) is not None:  # (*)
    state = torch.load(saved, weights_only=True)  # (*)
    model.load_state_dict(state["model"])  # (*)
    optimizer.load_state_dict(state["optimizer"])  # (*)
    scheduler.load_state_dict(state["scheduler"])  # (*)
    torch.set_rng_state(state["random"])  # (*)
    first = state["epochs"]  # (*)

with tempfile.TemporaryDirectory() as folder:
    for epoch in range(first, options.epochs):
        model.train()
        for batch in torch.split(torch.randperm(5000), options.batch_size):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        scheduler.step()

        model.eval()
        with torch.no_grad():
            accuracy = (model(images[5000:]).argmax(dim=1) == labels[5000:]).double().mean().item()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "random": torch.get_rng_state(),
            "epochs": epoch + 1,
        }  # (*)
        torch.save(state, f"{folder}/state.pt")  # (*)
        hopyard.report(accuracy=accuracy, checkpoint=f"{folder}/state.pt")

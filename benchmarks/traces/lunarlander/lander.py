"""A double DQN that learns to land: gymnasium's LunarLander-v3, with 1,500 steps per report.

Run by ../record.py. Needs the extra `lunarlander`: pip install './hopyard[torch,lunarlander]'
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from hopyard.trainer import Trainer

STEPS = 1500  # steps of the environment per report
EPISODES = 20  # number of last episodes whose mean return is the metric
OBSERVATION, ACTIONS = 8, 4
ACTIVATIONS: Mapping[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


class Replay:
    """The replay buffer: the last `size` transitions, in ring buffers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.added = 0
        self.arrays: dict[str, np.ndarray[Any, Any]] = {
            "before": np.zeros((size, OBSERVATION), np.float32),
            "action": np.zeros((size, 1), np.int64),
            "reward": np.zeros(size, np.float32),
            "after": np.zeros((size, OBSERVATION), np.float32),
            "goes_on": np.zeros(size, np.float32),  # 0 where the episode ended with `after`, by itself
        }

    def __len__(self) -> int:
        return min(self.added, self.size)

    def add(self, *transition: object) -> None:
        place = self.added % self.size
        for array, value in zip(self.arrays.values(), transition, strict=True):
            array[place] = value
        self.added += 1

    def batch(self, places: np.ndarray[Any, Any]) -> list[torch.Tensor]:
        return [torch.from_numpy(array[places]) for array in self.arrays.values()]


class LanderTrainer(Trainer):
    """A trainer whose position is 1,500 steps. The metric is the mean return of the last 20 training episodes, with exploration.

    A suspended training resumes bit for bit. The simulated environment cannot be saved, but each episode has its own seed: `load`
    starts the current episode again and repeats the actions that were taken in it.
    """

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        torch.manual_seed(self.context.seed)
        self.rng = np.random.default_rng(self.context.seed)
        self.network, self.target = (network(hyperparameters) for _ in range(2))
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), hyperparameters["lr"], fused=True)
        self.replay = Replay(hyperparameters["buffer_size"])
        self.world = gymnasium.make("LunarLander-v3")
        self.steps = 0
        self.returns: deque[float] = deque(maxlen=EPISODES)
        self.episode = -1
        self.begin()

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        if changed != set(hyperparameters):
            raise ValueError(f"{', '.join(sorted(changed))} cannot change while an agent learns")

    def train(self) -> Mapping[str, float]:
        losses = []
        for _ in range(STEPS):
            self.step()
            ready = self.steps >= self.hyperparameters["warmup"]
            if ready and self.steps % self.hyperparameters["train_every"] == 0:
                losses.append(self.learn())
        loss = torch.stack(losses).double().mean().item() if losses else float("nan")
        return {"return": float(np.mean(self.returns)), "train_loss": loss, "episodes": float(self.episode)}

    def begin(self) -> None:
        """Start the next episode. Its seed follows from the training's seed and the episode's number."""
        self.episode += 1
        self.actions: list[int] = []
        self.gained = 0.0
        seed = int(np.random.SeedSequence([self.context.seed, self.episode]).generate_state(1)[0])
        self.observation, _ = self.world.reset(seed=seed)

    def step(self) -> None:
        """Do one step of the environment; the action is random with the probability epsilon."""
        given = self.hyperparameters
        epsilon = max(given["epsilon_end"], 1 - (1 - given["epsilon_end"]) * self.steps / given["epsilon_steps"])
        if self.rng.random() < epsilon:
            action = int(self.rng.integers(ACTIONS))
        else:
            with torch.inference_mode():
                action = int(self.network(torch.from_numpy(self.observation)).argmax())
        after, reward, ended, cut_off, _ = self.world.step(action)
        self.replay.add(self.observation, action, reward, after, not ended)
        self.observation = after
        self.actions.append(action)
        self.gained += float(reward)
        self.steps += 1
        if ended or cut_off:
            self.returns.append(self.gained)
            self.begin()

    def learn(self) -> torch.Tensor:
        """Update the network once, and return the loss."""
        given = self.hyperparameters
        before, action, reward, after, goes_on = self.replay.batch(
            self.rng.integers(len(self.replay), size=given["batch_size"])
        )
        with torch.no_grad():  # double: the network chooses the action, the target network values it
            chosen = self.network(after).argmax(dim=1, keepdim=True)
            value = reward + given["gamma"] * goes_on * self.target(after).gather(1, chosen).squeeze(1)
        found = self.network(before).gather(1, action).squeeze(1)
        loss = (F.smooth_l1_loss if given["loss"] == "huber" else F.mse_loss)(found, value)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.network.parameters()), given["tau"])
        return loss.detach()

    def save(self, directory: Path) -> None:
        numbers = {
            "steps": self.steps,
            "added": self.replay.added,
            "episode": self.episode,
            "actions": self.actions,
            "returns": list(self.returns),
            "random": self.rng.bit_generator.state,
        }
        (directory / "numbers.json").write_text(json.dumps(numbers))
        state = {
            "network": self.network.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "replay": {name: torch.from_numpy(array) for name, array in self.replay.arrays.items()},
        }
        torch.save(state, directory / "state.pt")

    def load(self, directory: Path) -> None:
        numbers = json.loads((directory / "numbers.json").read_text())
        state = torch.load(directory / "state.pt", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.replay.arrays = {name: tensor.numpy() for name, tensor in state["replay"].items()}
        self.replay.added, self.steps = numbers["added"], numbers["steps"]
        self.returns = deque(numbers["returns"], maxlen=EPISODES)
        self.rng.bit_generator.state = numbers["random"]
        self.episode = numbers["episode"] - 1
        self.begin()
        for action in numbers["actions"]:
            self.observation, reward, *_ = self.world.step(action)
            self.actions.append(action)
            self.gained += float(reward)

    def close(self) -> None:
        self.world.close()


def network(hyperparameters: Mapping[str, Any]) -> nn.Sequential:
    """Return a network from the eight observed numbers to the values of the four actions."""
    activation = ACTIVATIONS[hyperparameters["activation"]]
    first, second = hyperparameters["hidden_1"], hyperparameters["hidden_2"]
    return nn.Sequential(
        nn.Linear(OBSERVATION, first),
        activation(),
        nn.Linear(first, second),
        activation(),
        nn.Linear(second, ACTIONS),
    )

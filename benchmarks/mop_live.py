"""What does model hopper parallelism cost, live, compared with task parallelism, data-parallel training and model averaging?

    python benchmarks/mop_live.py [--epochs 3] [--contenders mop,task,ddp,averaging] [--no-copies] [--seed 0]
        [--output FILE.json] [--plot FILE.svg] [--json]

16 configurations of a small convolutional network are trained for some epochs on all 60,000 images of Fashion-MNIST at 14 x 14 pixels
(`mop_live/mop_network.py`), and evaluated after each epoch on 10,000 others. There are two slots with one thread each:

* mop: Hopyard's policy `mop`; each agent has half of the images, and models hop between the agents;
* task: Hopyard's policy `default`; each agent has all images, and a configuration stays on its agent;
* ddp: one configuration at a time on both slots, each with half of the images; gradients are averaged at each step
  (`torch.nn.parallel.DistributedDataParallel` over gloo, with the same global batch size);
* averaging: the same, but copies of the model are averaged at the end of each epoch.

Then `mop` runs on four agents with one slot each, with one and with two copies of each partition, to compare the bytes only.

Each contender runs in a network namespace with only a loopback device, so the bytes that its processes send to each other are those
that the device has transferred. Columns: all s: the whole command, with services and imports; train s: from the first start of training
to the end of the last epoch; CPU s of all processes; moved MB over the network; hopped MB: snapshots transferred between agents; paper
MB: Cerebro's k x m x p x |S| + m x |S| for k epochs of |S| models of m bytes over p partitions, without evaluations; data MB stored,
over all slots; then, for each epoch, the mean accuracy of the configurations and the best one. The store gets only the results
(`ship_every: 0`), as in Cerebro's formula.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from asha_rivals import LOOPBACK_ONLY
from figures.cluster import up
from figures.frame import host
from stage_tree_live import CpuTime

from hopyard.client.datasets import DataPartition, DataReplica

HERE: Final = Path(__file__).parent
CODE: Final = HERE / "mop_live"
FASHION: Final = HERE.parent / "examples" / "fashion_mnist"
TITLES: Final = {
    "mop": "models hop (mop)",
    "task": "task parallelism (default)",
    "ddp": "data-parallel (DDP, gloo)",
    "averaging": "model averaging",
}
MB: Final = 1e6
_IMAGES: Final = {"train": ("train", 60_000), "eval": ("t10k", 10_000)}


# --- data ---


def whole(folder: Path) -> dict[str, Path]:
    """Write a file with all images of each split, shuffled. Return the files by the split's name."""
    sys.path.insert(0, str(FASHION))
    from data import load  # type: ignore[import-not-found]  # the example's own module

    found = {}
    for split, (part, count) in _IMAGES.items():
        images, labels = load(part, 0, count)
        order = np.random.default_rng(0).permutation(count)
        found[split] = folder / f"{split}.npz"
        np.savez(found[split], images=images[order], labels=labels[order])
    return found


def parts(files: Mapping[str, Path], folder: Path, count: int) -> dict[str, Path]:
    """Cut each file into `count` equal partitions. Return the new files by the partition's name, such as "train/0"."""
    found = {}
    for split, file in files.items():
        with np.load(file) as arrays:
            images, labels = arrays["images"], arrays["labels"]
        for number, rows in enumerate(np.array_split(np.arange(len(labels)), count)):
            found[f"{split}/{number}"] = folder / f"{split}-{number}.npz"
            np.savez(found[f"{split}/{number}"], images=images[rows], labels=labels[rows])
    return found


# --- contenders; each of these runs in a separate process and network namespace ---


async def hopyard(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run a search with Hopyard in a cluster for this search only. With `mop`, each partition is stored on `copies` agents."""
    agents, hops = given["agents"], given["contender"] == "mop"
    code = folder / "code"
    shutil.copytree(CODE, code, ignore=shutil.ignore_patterns("__pycache__", "parallel.py"))
    network = _configurations()
    # The grid over these choices gives exactly the configurations of the list, so every contender tries the same ones.
    spec: dict[str, Any] = {
        "name": given["contender"],
        "trainer": "hops.py:Fashion",
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {name: {"choice": sorted({one[name] for one in network})} for name in network[0]},
        "generator": "grid",
        "environment": {name: os.environ[name] for name in ("WHOLE_TRAIN", "WHOLE_EVAL")},
        "snapshot": {"every": 1_000_000, "keep_best": 0, "ship_every": 0},
    }
    files = {name: Path(file) for name, file in given["files"].items()}
    data_bytes = agents * sum(file.stat().st_size for file in files.values())
    async with up(folder / "data", agents, 1) as (_, client):
        nodes = sorted(node.id for node in await client.nodes())
        units = given["epochs"]
        if hops:
            cut = parts(files, folder, agents)
            data_bytes, replicas = 0, {}
            for number, (name, file) in enumerate(cut.items()):
                holders = [nodes[(number + copy) % agents] for copy in range(given["copies"])]
                replicas[name] = tuple(
                    DataReplica(node, str(_placed(file, folder / "disks" / node))) for node in holders
                )
                data_bytes += file.stat().st_size * len(holders)
            await client.register_data("fashion", [DataPartition(name, replicas=r) for name, r in replicas.items()])
            spec |= {"data": "fashion", "policy": {"name": "mop", "gang_below": 0}}
            units *= agents
        else:
            spec |= {"policy": {"name": "default"}}
        spec["stop"] = {"jobs": len(network), "max_iterations": units}
        (code / "experiment.yaml").write_text(yaml.safe_dump(spec))
        began = time.time()
        created = await client.create(code / "experiment.yaml")
        ended = await client.wait(created.id, timeout=3600)
        seconds = time.time() - began
        if ended.reason != "all jobs ended":
            sys.exit(f"{given['contender']}: {ended.state.name}: {ended.reason}")
        curves = []
        for job in await client.jobs(created.id):
            curve = {s.report.position: s.report.metrics for s in await client.statistics(created.id, job.id)}
            curves.append(
                [curve[units // given["epochs"] * epoch]["accuracy"] for epoch in range(1, given["epochs"] + 1)]
            )
        hopped = (await client.get(created.id)).hops
    return {
        "train_seconds": seconds,
        "curves": curves,
        "data_bytes": data_bytes,
        "hopped_bytes": hopped.direct_bytes,
        "stored_bytes": hopped.stored_bytes,
        # The store got one model per configuration, and each model hops to each partition once per epoch.
        "paper_bytes": (units + 1) * hopped.stored_bytes if hops else 0,
    }


def _placed(file: Path, disk: Path) -> Path:
    disk.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(file, disk))


def parallel(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run data-parallel training, with one process per slot."""
    agents = given["agents"]
    files = {name: Path(file) for name, file in given["files"].items()}
    cut = parts({"train": files["train"]}, folder, agents)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "log"
    began = time.time()
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                str(CODE / "parallel.py"),
                given["contender"],
                *map(str, (rank, agents, port, given["seed"], given["epochs"])),
                *map(str, (cut[f"train/{rank}"], files["eval"], log)),
            ]
        )
        for rank in range(agents)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(f"{given['contender']}: a process failed")
    lines = [text.split() for text in log.read_text().splitlines()]
    curves: list[list[float]] = [[] for _ in _configurations()]
    for number, _, accuracy, _ in lines:
        curves[int(number)].append(float(accuracy))
    stored = sum(file.stat().st_size for file in cut.values()) + files["eval"].stat().st_size
    return {
        "train_seconds": max(float(line[3]) for line in lines) - began,
        "curves": curves,
        "data_bytes": stored,
        "hopped_bytes": 0,
        "stored_bytes": 0,
        "paper_bytes": 0,
    }


def inside(given: Mapping[str, Any]) -> None:
    """Run one contender, and print its figures with the bytes that the loopback device of its network namespace has transferred."""
    with tempfile.TemporaryDirectory(prefix="mop") as made:
        folder = Path(made)
        found = (
            asyncio.run(hopyard(given, folder)) if given["contender"] in ("mop", "task") else parallel(given, folder)
        )
    carried = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    print(json.dumps({**found, "moved_bytes": int(carried.split(":")[1].split()[0])}))


def _configurations() -> list[dict[str, Any]]:
    sys.path.insert(0, str(CODE))
    from mop_network import CONFIGURATIONS  # type: ignore[import-not-found]  # the contenders' own module

    found: list[dict[str, Any]] = CONFIGURATIONS
    return found


# --- outside ---


def run(
    contender: str, files: Mapping[str, Path], given: argparse.Namespace, agents: int, copies: int
) -> dict[str, Any]:
    """Run one contender in a new network namespace, and return its figures."""
    asked = {
        "contender": contender,
        "files": {name: str(file) for name, file in files.items()},
        "epochs": given.epochs,
        "seed": given.seed,
        "agents": agents,
        "copies": copies,
    }
    os.environ.update(WHOLE_TRAIN=str(files["train"]), WHOLE_EVAL=str(files["eval"]), OMP_NUM_THREADS="1")
    began, used = time.time(), CpuTime()
    command = [*LOOPBACK_ONLY, sys.executable, __file__, "--inside", json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, used:
        out, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{contender} ended with exit code {process.returncode}")
    found = json.loads(out)
    return {
        "contender": contender,
        "agents": agents,
        "copies": copies,
        "all_seconds": time.time() - began,
        "cpu_seconds": used.seconds,
        **found,
    }


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows as a table."""
    print(
        f"{'':28}{'agents':>7}{'copies':>7}{'all s':>8}{'train s':>8}{'CPU s':>8}{'moved MB':>10}{'hopped MB':>10}"
        f"{'paper MB':>9}{'data MB':>9}   mean (best) accuracy by epoch"
    )
    for row in rows:
        by_epoch = list(zip(*row["curves"], strict=True))
        accuracies = "  ".join(f"{sum(one) / len(one):.4f} ({max(one):.4f})" for one in by_epoch)
        print(
            f"{TITLES[row['contender']]:28}{row['agents']:7}{row['copies']:7}{row['all_seconds']:8.1f}{row['train_seconds']:8.1f}"
            f"{row['cpu_seconds']:8.1f}{row['moved_bytes'] / MB:10.1f}{row['hopped_bytes'] / MB:10.2f}"
            f"{row['paper_bytes'] / MB:9.2f}{row['data_bytes'] / MB:9.1f}   {accuracies}"
        )


def plot(rows: Sequence[Mapping[str, Any]], to: Path) -> None:
    """Draw the accuracy by epoch: the mean over the configurations, and the best one."""
    from matplotlib.figure import Figure

    from hopyard.plots.figures import theme

    with theme.applied():
        figure = Figure(figsize=(8, 3.4))
        kinds: dict[str, Callable[[Sequence[float]], float]] = {"mean": statistics.fmean, "best": max}
        for axes, (title, of) in zip(figure.subplots(1, 2), kinds.items(), strict=True):
            for number, row in enumerate(rows):
                heights = [of(one) for one in zip(*row["curves"], strict=True)]
                style = theme.style_of(number)
                axes.plot(
                    range(1, len(heights) + 1),
                    heights,
                    color=style.color,
                    linestyle=style.line,
                    marker=style.marker,
                    label=TITLES[row["contender"]],
                )
                axes.set_xticks(range(1, len(heights) + 1))
            axes.set_xlabel("epoch")
            axes.set_ylabel(f"accuracy, {title} of the configurations")
            axes.legend()
        figure.savefig(to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--epochs", type=int, default=3, help="of each configuration [default: 3]")
    add("--contenders", default=",".join(TITLES), metavar="NAME,...", help=f"[default: {','.join(TITLES)}]")
    add("--no-copies", action="store_true", help="leave out mop on four agents")
    add("--seed", type=int, default=0, help="of the contenders without Hopyard [default: 0]")
    add("--output", type=Path, metavar="FILE.json", help="write what --json prints to a file, too")
    add("--plot", type=Path, metavar="FILE.svg", help="accuracy by epoch, as SVG or PNG")
    add("--json", action="store_true")
    add("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:
        inside(json.loads(given.inside))
        return
    contenders = given.contenders.split(",")
    if unknown := sorted(set(contenders) - set(TITLES)):
        parser.error(f"--contenders: there is no {', '.join(unknown)}; there are: {', '.join(TITLES)}")
    with tempfile.TemporaryDirectory(prefix="images") as folder:
        files = whole(Path(folder))
        asked = [(one, 2, 1) for one in contenders]
        if "mop" in contenders and not given.no_copies:
            asked += [("mop", 4, 1), ("mop", 4, 2)]
        rows = []
        for contender, agents, copies in asked:
            rows.append(run(contender, files, given, agents, copies))
            print(f"{TITLES[contender]}, {agents} agents: {rows[-1]['all_seconds']:.1f} s", file=sys.stderr)
    document = json.dumps({"host": host(), "epochs": given.epochs, "seed": given.seed, "rows": rows})
    if given.output is not None:
        given.output.write_text(document)
    if given.plot is not None:
        plot(rows[: len(contenders)], given.plot)
    if given.json:
        print(document)
    else:
        show(rows)


if __name__ == "__main__":
    main()

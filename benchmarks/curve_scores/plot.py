"""Draws the reliability plot, which is legible in print and without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

MARKS: Final = (("-", "o", "0.0"), ("--", "s", "0.35"), (":", "^", "0.6"))


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw observed against predicted frequencies, with one panel per predictor and one line per part of the curve.

    Args:
        rows: The `means` of the benchmark's results.
        path: The file to write; its suffix determines the format.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    names = list(dict.fromkeys(row["predictor"] for row in rows))
    parts = sorted({row["part"] for row in rows})
    figure: Any = import_module("matplotlib.figure").Figure(figsize=(2.3 * len(names), 4.8), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, name in enumerate(names):
        above, below = axes[:, column]
        above.plot([0, 1], [0, 1], color="0.85", linewidth=3, zorder=0)
        below.axhline(0.1, color="0.85", linewidth=3, zorder=0)
        for part, (line, mark, grey) in zip(parts, MARKS, strict=False):
            (row,) = (one for one in rows if one["predictor"] == name and one["part"] == part)
            look = {"linestyle": line, "marker": mark, "color": grey, "markersize": 4, "linewidth": 1}
            some = [one for one in row["reliability"]["target"] if one["count"]]
            where = [one["predicted"] for one in some], [one["observed"] for one in some]
            above.plot(*where, label=f"first {part:.0%}", **look | {"markersize": 2})
            # The area of a mark is proportional to the number of predictions that it stands for.
            most = max(one["count"] for one in some)
            sizes = [70 * one["count"] / most for one in some]
            above.scatter(*where, s=sizes, marker=mark, color=grey)
            ranks = row["reliability"]["ranks"]
            below.plot([(index + 0.5) / len(ranks) for index in range(len(ranks))], ranks, **look)
        above.set(title=name, xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="predicted P(target)")
        below.set(xlim=(0, 1), ylim=(0, None), xlabel="rank of the final value")
        for panel in (above, below):
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("share that reached it")
    axes[1, 0].set_ylabel("share of curves")
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)

"""Experiment files for the tests."""

import textwrap

GOOD = textwrap.dedent("""\
    name: digits
    trainer: train.py:DigitsTrainer
    metric: {name: accuracy, mode: max, target: 0.97, kill_threshold: 0.15}
    space:
      lr: {loguniform: [1e-4, 1]}
      batch_size: {choice: [32, 64, 128]}
      layers: {int: [1, 4]}
      epochs: 20
    generator: {name: random, seed: 7}
    policy: {name: pop, evaluation_boundary: 10}
    stop: {jobs: 100, max_iterations: 60, max_time: 15m, max_failures: 5}
    snapshot: {provider: auto, every: 1, keep_latest: 1, keep_best: 1}
    resources: {slots: 2, per_job: {cpus: 1, gpus: 0}}
    """)
"""Line numbers in tests refer to these lines."""

SMALLEST = textwrap.dedent("""\
    name: small
    command: [python, train.py]
    metric: {name: loss, mode: min}
    space: {lr: {choice: [0.1, 0.2]}}
    """)


def changed(line: int, text: str) -> str:
    """Return `GOOD` with line number `line` replaced; `text` may have several lines."""
    lines = GOOD.splitlines()
    lines[line - 1] = text
    return "\n".join(lines)

"""Tests of `hopyard init`: what it finds in a script, what it suggests, and that the written file loads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hopyard.cli.init import suggest
from hopyard.cli.init.metric_patterns import NUMBER
from hopyard.cli.init.script_analysis import read_script
from hopyard.cli.main import run
from hopyard.spec import ExperimentSpec, load_spec
from hopyard.spec.models import MetricSpec
from hopyard.spec.sections import JobResources, LogsSpec, ResourcesSpec, SnapshotSpec, StopSpec

pytestmark = pytest.mark.quick

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("-l", "--lr", type=float, default=1e-1)
parser.add_argument("--batch-size", type=int, default=64, dest="batch")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--seed", type=int, default=-1)
parser.add_argument("--fast", action="store_true")
args = parser.parse_args()
"""
CLICK = """
import click
@click.command()
@click.option("--learning-rate", "lr", default=0.001)
@click.option("--layers", default=2, type=int)
@click.option("--kind", type=click.Choice(["a", "b"]))
@click.option("--debug", is_flag=True)
def main(lr, layers, kind, debug): ...
"""
TYPER = """
import typer
from typing import Annotated
app = typer.Typer()
@app.command()
def main(path: str, lr: float = 0.01, units: Annotated[int, typer.Option("--hidden-units")] = 32,
         momentum: float = typer.Option(0.9, "--momentum"), verbose: bool = False): ...
def other(alpha: float = 3.0): ...
typer.run(other)
"""


def written(tmp_path: Path, code: str | None, *arguments: str, name: str = "train.py") -> tuple[ExperimentSpec, str]:
    """Run `hopyard init` on a script with this code (None: without a script). Return the loaded specification and the file's text."""
    script = tmp_path / name
    if code is not None:
        script.write_text(code)
    file = tmp_path / "experiment.yaml"
    assert run(["init", *([str(script)] if code is not None else []), "-o", str(file), *arguments]) == 0
    text = file.read_text()
    return load_spec(text), text


@pytest.mark.parametrize(
    ("code", "flags", "space"),
    [
        (
            ARGPARSE,
            ["--lr", "--batch-size", "--dropout", "--optimizer", "--epochs", "--seed"],
            {
                "lr": {"loguniform": [0.01, 1.0]},
                "batch": {"choice": [32, 64, 128]},
                "dropout": {"uniform": [0.0, 0.5]},
                "optimizer": {"choice": ["sgd", "adam"]},
            },
        ),
        (
            CLICK,
            ["--learning-rate", "--layers", "--kind"],
            {"lr": {"loguniform": [0.0001, 0.01]}, "layers": {"int": [1, 4]}, "kind": {"choice": ["a", "b"]}},
        ),
        (
            TYPER,
            ["--lr", "--hidden-units", "--momentum", "--alpha"],
            {
                "lr": {"loguniform": [0.001, 0.1]},
                "units": {"choice": [16, 32, 64]},
                "momentum": {"uniform": [0.5, 0.99]},
                "alpha": {"loguniform": [0.3, 30.0]},
            },
        ),
    ],
    ids=["argparse", "click", "typer"],
)
def test_options_are_seen_and_searched_around_their_defaults(
    tmp_path: Path, code: str, flags: list[str], space: dict[str, Any]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(code)
    found = read_script(file)
    assert sorted(one.flag for one in found.options) == sorted(flags)
    assert suggest.space(found.options, found.values) == space


def test_a_script_that_reports_is_a_command_with_its_options(tmp_path: Path) -> None:
    code = f"{ARGPARSE}\nimport hopyard as h\nfor e in range(args.epochs): h.report(loss=1.0, val_accuracy=0.5, checkpoint='x')\n"
    spec, text = written(tmp_path, code)
    assert spec.program == "command"
    assert spec.command is not None
    assert spec.command[:4] == ("python", "train.py", "--lr", "{lr}")
    assert "{batch}" in spec.command
    assert "--epochs" not in spec.command
    assert (spec.metric.name, spec.metric.mode, spec.stop.max_iterations) == ("val_accuracy", "max", 12)
    assert "# Options that are not searched: --epochs, --seed." in text
    before, _, _ = text.partition("  max_iterations: 12\n")
    assert "The script is ended inside its report at this position" in before.splitlines()[-2]
    assert "# max_iterations cannot exceed the length of the script (--epochs)" in text


REPORT = "hopyard.report(loss=1.0)"
OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', default=0.1)\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"for e in range(10): {REPORT}", 10),
        (f"for step in range(1, 11):\n  if step: {REPORT}", 10),
        (f"for n in tqdm(range(10)): {REPORT}", 10),
        (f"for n in range(0, 20, 2): {REPORT}", 10),
        (f"first = 0\nif saved: first = 3\nfor e in range(first, 10): {REPORT}", 10),
        (f"EPOCHS = 10\nfor e in range(EPOCHS): {REPORT}", 10),
        (f"epochs: int = 10\nfor e in range(epochs): {REPORT}", 10),
        (f"for a in range(5):\n  for b in range(2): {REPORT}", 10),
        (f"for b in range(7): pass\nfor a in range(10): {REPORT}", 10),
        (f"def after(): {REPORT}\nfor epoch in range(10): after()", 10),
        (
            f"{OPTION}p.add_argument('--steps', type=int, default=10)\na = p.parse_args()\nfor e in range(a.steps): {REPORT}",
            10,
        ),
        (f"{OPTION}p.add_argument('--epochs', type=int, default=3)\nfor e in range(10): {REPORT}", 10),
        ("EPOCHS = 10\nfor epoch in range(EPOCHS): print(f'accuracy={epoch}')", 10),
        (f"for batch in loader: {REPORT}", None),
        (f"while True: {REPORT}", None),
        (f"for a in range(5):\n  for b in loader: {REPORT}", None),
        (f"N = 5\nN = 6\nfor a in range(N): {REPORT}", None),
        (f"for a in range(0): {REPORT}", None),
        (REPORT, None),
    ],
)
def test_the_number_of_iterations_is_found_in_the_loop_that_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, expected: int | None
) -> None:
    spec, text = written(tmp_path, f"import hopyard\n{code}\n")
    todo = "to do: stop.max_iterations: the number of iterations was not found; policies such as asha need it\n"
    assert spec.stop.max_iterations == expected
    assert (todo in capsys.readouterr().err) is (expected is None)
    assert "steps" not in spec.space
    assert ("cannot exceed the length of the script (--steps)" in text) is ("--steps" in code)


def test_a_trainer_is_found_by_what_it_is_derived_from(tmp_path: Path) -> None:
    code = """
from hopyard import Trainer as Base
class Common(Base):
    def setup(self, hp, changed): self.lr = hp["lr"]; self.width = hp.get("width", 16)
class Mine(Common):
    def train(self): return {"error": self.hyperparameters["depth"]}
class Other: ...
"""
    spec, _ = written(tmp_path, code)
    assert spec.trainer == "train.py:Mine"
    assert (spec.metric.name, spec.metric.mode) == ("error", "min")
    assert set(spec.space) >= {"depth"}


def test_values_that_are_read_by_name_are_searched(tmp_path: Path) -> None:
    code = """
import hopyard
values = hopyard.hyperparameters()
lr, n = values["lr"], hopyard.hyperparameters().get("trees", 100)
hopyard.report(score=lr)
"""
    spec, _ = written(tmp_path, code)
    assert spec.command == ("python", "train.py")
    assert set(spec.space) == {"lr", "trees"}
    assert spec.space.to_dict()["trees"] == {"int": [50, 200]}


@pytest.mark.parametrize(
    ("line", "printed", "metric", "value"),
    [
        ('print(f"epoch {e}: accuracy={a:.3f}")', "epoch 3: accuracy=0.912", "accuracy", "0.912"),
        ('print("step %d val_loss: %.2e" % (e, a))', "step 1 val_loss: 3.00e-01", "val_loss", "3.00e-01"),
        ('log.info("f1 = {:.2f}".format(a))', "f1 = nan", "f1", "nan"),
        ('print("loss:", a)', "loss: NaN", "loss", "NaN"),
        ('print("loss:", a)', "loss: -inf", "loss", "-inf"),
        ('print("test error", a)', "test error 17", "error", "17"),
    ],
)
def test_what_is_printed_is_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, printed: str, metric: str, value: str
) -> None:
    spec, _ = written(tmp_path, f"import logging as log\na, e = 0.9, 1\n{line}\n")
    todo = "to do: log.metrics: check that the patterns match the output, or call hopyard.report and run init --force\n"
    assert todo in capsys.readouterr().err
    assert spec.log is not None
    found = re.search(spec.log.metrics[metric], printed)
    assert found is not None
    assert found[1] == value
    assert spec.metric.mode == ("min" if metric in ("val_loss", "loss", "error") else "max")


def test_a_script_that_shows_nothing_gets_an_example_and_is_told_what_to_see_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, _ = written(tmp_path, "print('hello')\n")
    assert spec.log is not None
    assert spec.log.metrics == {"score": f"score={NUMBER}"}
    err = capsys.readouterr().err
    assert (
        "print one after each epoch, such as score=0.93, and adapt the pattern, or call hopyard.report(score=0.93) and run init --force"
        in err
    )
    assert "pass the values: options in the command, such as [python, train.py, --lr, '{lr}']" in err
    assert err.endswith(f"check it, then: hopyard run {tmp_path / 'experiment.yaml'}\n")


def test_a_program_in_another_language_and_no_script_at_all(tmp_path: Path) -> None:
    spec, _ = written(tmp_path, "#!/bin/sh\n", name="train.sh")
    assert spec.log is not None
    assert spec.log.command == ("./train.sh", "{lr}")
    spec, _ = written(tmp_path, None, "--force")
    assert spec.trainer == "train.py:MyTrainer"


def test_every_setting_has_a_word_and_stands_there_with_its_default(tmp_path: Path) -> None:
    spec, text = written(tmp_path, ARGPARSE)
    for model in (ExperimentSpec, MetricSpec, StopSpec, SnapshotSpec, ResourcesSpec, JobResources, LogsSpec):
        for name, field in model.model_fields.items():
            if name in ("trainer", "command"):
                # One of these fields says what trains; the file names the other ones in a comment.
                continue
            assert re.search(rf"^ *#?{name}:", text, re.MULTILINE), name
            assert (field.description or "?")[:30] in text, name
    assert text.splitlines()[1] == "# A line #name: value is a setting at its default; delete the # to change it."
    with_defaults = re.sub(r"^( *)#(\w+:)", r"\1\2", text, flags=re.MULTILINE)
    assert load_spec(with_defaults) == spec


def test_it_never_writes_over_a_file_unless_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    file = tmp_path / "experiment.yaml"
    file.write_text("mine")
    command = ["init", str(tmp_path / "train.py"), "-o", str(file)]
    assert run(command) == 2
    assert (
        capsys.readouterr().err == f"error: {file} exists already; --force overwrites it, -o FILE writes another file\n"
    )
    assert file.read_text() == "mine"
    assert run([*command, "--force", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["mode"], shown["file"], list(shown["space"])) == (
        "log",
        str(file),
        ["lr", "batch", "dropout", "optimizer"],
    )


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("gone.py", None, "there is no such file"),
        ("wrong.py", "def f(:\n", "wrong.py:1: is not Python: invalid syntax"),
        ("null.py", "a = 1\0", "is not Python"),
        ("gone.sh", None, "there is no such file"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(
    tmp_path: Path, name: str, code: str | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if code is not None:
        (tmp_path / name).write_text(code)
    assert run(["init", str(tmp_path / name), "-o", str(tmp_path / "e.yaml")]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "e.yaml").exists()


def test_a_script_that_would_not_travel_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    (tmp_path / "other").mkdir()
    assert run(["init", str(tmp_path / "train.py"), "-o", str(tmp_path / "other" / "e.yaml")]) == 2
    assert "only the folder of the experiment file is sent to the machines: hopyard init" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "default", "expected"),
    [
        ("weight_decay", 0.0, {"uniform": [0.0, 1.0]}),
        ("scale", 4.0, {"uniform": [2.0, 8.0]}),
        ("shift", -2.0, {"uniform": [-4.0, -1.0]}),
        ("tiny", 0.001, {"loguniform": [0.0001, 0.01]}),
        ("batch", 1, {"choice": [1, 2]}),
        ("layers", 0, None),
        ("num_workers", 4, None),
        ("max_epochs", 4, None),
        ("lr", None, {"loguniform": [1e-4, 1e-1]}),
        ("name", "resnet", None),
        ("flag", True, None),
        ("beta2", 0.999, {"uniform": [0.9, 0.9999]}),
        ("nothing", float("nan"), None),
    ],
)
def test_suggestions(name: str, default: object, expected: object) -> None:
    assert suggest.parameter(name, default) == expected


@pytest.mark.parametrize(
    ("call", "told"),
    [("h.report(a=1.0)", True), ("h.report(a=1.0, checkpoint='x')", False), ("h.report(**values)", False)],
)
def test_a_script_that_keeps_no_state_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: str, told: bool
) -> None:
    written(tmp_path, f"import hopyard as h\n{call}\n")
    assert ("to do: hopyard.report gets no checkpoint=FILE" in capsys.readouterr().err) is told


OPTION_FOR_LR = "import argparse, hopyard\np = argparse.ArgumentParser()\np.add_argument('--lr', default=0.1)\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (f"for e in range(3): {REPORT}", None),
        (f"for e in range(3): {REPORT}\nprint('done')", None),
        (f"for e in range(3): {REPORT}\nprint(evaluate())", 5),
        (f"for e in range(3):\n  {REPORT}\n  plot(e)", None),
        (f"for w in range(9): warm(w)\nfor e in range(3): {REPORT}\n\nplot(e)", 7),
        (f"for e in range(3): {REPORT}\nfor f in range(3): {REPORT}", None),
        (f"with device():\n  for e in range(3): {REPORT}\n  test()", 6),
        (f"if True:\n  for e in range(3): {REPORT}\ntest()", 6),
        (f"try:\n  for e in range(3): {REPORT}\nfinally:\n  save()", None),
        (f"def main():\n  for e in range(3): {REPORT}\n  return 1\ndef other(): pass\nmain()", None),
        (f"def fit():\n  for e in range(3): {REPORT}\ndef main():\n  fit()\n  test()\nif 1:\n  main()", 8),
        (f"def main():\n  for e in range(3): {REPORT}\n  test()\nrun(main)", 6),
        (f"def after(): {REPORT}\nfor epoch in range(3): after()\ntest()", 6),
        (f"{REPORT}\ntest()", None),
        ("for epoch in range(3): print(f'loss={epoch}')\ntest()", 5),
    ],
)
def test_code_after_the_loop_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, line: int | None
) -> None:
    written(tmp_path, OPTION_FOR_LR + code + "\n")
    notes = [one for one in capsys.readouterr().err.splitlines() if "after the loop" in one]
    reason = "the code after the loop does not run, because a job ends at its last"
    assert [one.partition(reason)[0] for one in notes] == ([] if line is None else [f"  note: train.py:{line}: "])


def test_code_after_a_loop_of_unknown_length_runs_in_jobs_that_reach_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, f"{OPTION_FOR_LR}while True:\n  {REPORT}\ntest()\n")
    assert (
        "  note: train.py:6: the code after the loop runs in each job that trains to the end of the loop, and not in jobs that are "
        "stopped early\n"
    ) in capsys.readouterr().err


def test_files_that_are_not_code_and_travel_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, size in {"last.pt": 200_000, "small.pt": 100, "big.py": 300_000, "config.json": 300_000}.items():
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "data").mkdir()
    for number in range(6):
        (tmp_path / "data" / f"{number}.bin").write_bytes(bytes(50_000))
    written(tmp_path, "import hopyard\nhopyard.report(a=1)\n")
    assert (
        "  note: data/ (293.0 KiB) and last.pt (195.3 KiB) travel to the nodes with the code; leave out what no job reads by a line in "
        ".hopyardignore, such as /data/\n"
    ) in capsys.readouterr().err
    (tmp_path / ".hopyardignore").write_text("/data/\n")
    written(tmp_path, "import hopyard\nhopyard.report(a=1)\n", "--force", "--json")
    assert json.loads(capsys.readouterr().out)["hints"] == [
        "last.pt (195.3 KiB) travels to the nodes with the code; leave out what no job reads by a line in .hopyardignore, such as "
        "/last.pt"
    ]
    (tmp_path / ".hopyardignore").write_text("*.pt\ndata\n")
    written(tmp_path, "import hopyard\nhopyard.report(a=1)\n", "--force")
    assert "travel" not in capsys.readouterr().err


def test_more_than_the_limit_and_links_to_elsewhere_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopyard.cli.init.hints.DEFAULT_LIMIT_BYTES", 200 * 1024)
    for number in range(5):
        (tmp_path / f"{number}.bin").write_bytes(bytes(110 * 1024 + number))
    written(tmp_path, "import hopyard\nhopyard.report(a=1)\n")
    named = "4.bin (110.0 KiB), 3.bin (110.0 KiB), 2.bin (110.0 KiB) and 2 more travel to the nodes with the code"
    assert f"  note: {named} (at most 200.0 KiB may); leave out" in capsys.readouterr().err
    (tmp_path / "link").symlink_to("/usr")
    written(tmp_path, "import hopyard\nhopyard.report(a=1)\n", "--force")
    assert f"  to do: {tmp_path}/link links to /usr, outside of {tmp_path}; list it in .hopyardignore\n" in (
        capsys.readouterr().err
    )

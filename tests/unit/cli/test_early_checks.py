"""Tests of checks before a cluster starts: packages, checkpoints, too few jobs or iterations, and the extras of pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hopyard._common import extras
from hopyard._common.extras import install_command
from hopyard.cli.commands.experiments import requirements
from hopyard.cli.commands.experiments.plan_preview import plan_notes, planned
from hopyard.cli.commands.experiments.preflight import check_policy, policy_notes
from hopyard.cli.commands.experiments.requirements import check_imports, check_plugins
from hopyard.cli.init.plan import plan_for
from hopyard.client.submission import Submission, prepare
from hopyard.policy import ExperimentView
from hopyard.spec import SpecError
from hopyard_policies.halving import AshaPolicy, ShaPolicy

SCRIPT = "import hopyard\nfor epoch in range(16):\n    hopyard.report(acc=1.0)\n"
SAVING = "import hopyard\nfor epoch in range(16):\n    hopyard.report(acc=1.0, checkpoint='last')\n"
FILE = """name: x
command: [python, train.py, "{lr}"]
metric: {name: acc, mode: max}
space: {lr: {uniform: [0, 1]}}
stop: {jobs: 40, max_iterations: 16}
"""
PACKAGES = [
    "numpy>=1.26",
    'hopyard[hpgen]; extra == "optuna"',
    "a-package-that-is-not-there>=5.0,<6; extra == 'optuna'",
    "pytest>=1; extra == 'optuna'",
    "another-package-that-is-not-there; extra == 'hpgen'",
]


def given(folder: Path, more: str = "", script: str = SCRIPT, text: str = FILE) -> Submission:
    (folder / "train.py").write_text(script)
    file = folder / "experiment.yaml"
    file.write_text(text + more)
    return prepare(file)


# ------------------------------------------------------------------------------------------------------------- packages


def test_the_command_installs_what_an_extra_lacks_and_never_asks_the_index_for_hopyard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = install_command("optuna", requirements=PACKAGES)
    assert command == "pip install another-package-that-is-not-there 'a-package-that-is-not-there>=5.0,<6'"
    monkeypatch.setattr(extras, "source_folder", lambda: None)
    assert (
        install_command("cli", requirements=PACKAGES) == "pip install './hopyard[cli]', where ./hopyard is a checkout"
    )


@pytest.mark.parametrize(
    ("more", "module", "message"),
    [
        (
            "generator: tpe\n",
            "optuna",
            "experiment.yaml:6: generator: tpe needs optuna, which is not installed here: pip",
        ),
        (
            "policy: bohb\n",
            "optuna",
            "generator: tpe (of the policy bohb) needs optuna, which is not installed here: pip",
        ),
        (
            "predictor: mcmc\n",
            "numba",
            "experiment.yaml:6: predictor: mcmc needs numba, which is not installed here: pip",
        ),
    ],
)
def test_a_plugin_whose_package_is_missing_is_refused(
    more: str, module: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = given(tmp_path, more)
    check_plugins(submission)
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == module else object())
    with pytest.raises(SpecError) as error:
        check_plugins(submission)
    assert message in str(error.value)
    with pytest.raises(SpecError, match=f"needs {module}"):
        planned([tmp_path / "experiment.yaml"], None)


def test_a_module_that_the_program_imports_first_is_needed_here(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        check_imports(given(tmp_path, script="import json\nimport not_there.inner\n" + SCRIPT))
    assert "experiment.yaml:2: command: train.py:2 imports not_there.inner, which is not installed here: " in str(
        error.value
    )
    assert str(error.value).endswith("pip install not_there")


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    import not_there\nexcept ImportError:\n    pass\n",
        "def late():\n    import not_there\n",
        "from . import not_there\n",
        "import beside\n",
        "import package.inner\n",
        "not Python\n",
    ],
)
def test_other_imports_are_not_checked(script: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").touch()
    (tmp_path / "package").mkdir()
    check_imports(given(tmp_path, script=script))


def test_a_trainer_for_pytorch_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FILE.replace('command: [python, train.py, "{lr}"]', "trainer: train.py:T")
    submission = given(tmp_path, script="from hopyard.torch import TorchTrainer\n", text=text)
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(
        SpecError, match=r"experiment.yaml:2: trainer: train.py:1 imports hopyard.torch, but torch is not inst"
    ):
        check_imports(submission)


def test_another_interpreter_is_not_checked(tmp_path: Path) -> None:
    check_imports(given(tmp_path, "interpreter: /opt/venv\n", script="import not_there\n"))


def test_the_extra_all_contains_every_optional_feature() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def contained(name: str) -> set[str]:
        inner = {
            one.strip()
            for line in extras[name]
            if line.startswith("hopyard[")
            for one in line.removeprefix("hopyard[").rstrip("]").split(",")
        }
        return inner.union(*(contained(one) for one in inner))

    others = {"demo", "lunarlander", "dev"}  # Examples, benchmarks and developers.
    assert contained("all") == set(extras) - others - {"all"}
    assert contained("dev") == set(extras) - {"dev"}


# ---------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(
    ("more", "cost"),
    [
        ("policy: {name: asha, eta: 2, brackets: [0]}\n", "about 76 iterations"),
        ("policy: {name: default, barrier: true, epoch: 5}\n", "about 1200 iterations"),
        ("policy: pop\n", "trains from its beginning again; give"),
    ],
)
def test_a_program_without_checkpoints_is_warned_about_under_a_policy_that_pauses(
    more: str, cost: str, tmp_path: Path
) -> None:
    text = FILE.replace("mode: max}", "mode: max, target: 0.9}")
    notes = policy_notes(given(tmp_path, more, text=text))
    (warning,) = [note for note in notes if note.startswith("warning: ")]
    assert "suspends jobs and continues them later, and train.py saves no checkpoint" in warning
    assert cost in warning
    assert "hopyard.report(..., checkpoint=PATH)" in warning
    assert not any("checkpoint" in note for note in policy_notes(given(tmp_path, more, script=SAVING, text=text)))
    criu = f"{more}snapshot: {{provider: criu}}\n"
    assert not any("checkpoint" in note for note in policy_notes(given(tmp_path, criu, text=text)))


def test_a_policy_that_pauses_nothing_needs_no_checkpoint(tmp_path: Path) -> None:
    assert policy_notes(given(tmp_path, "policy: {name: bandit}\n")) == []


def test_a_plan_counts_what_is_trained_again(tmp_path: Path) -> None:
    given(tmp_path, "policy: {name: asha, eta: 2, brackets: [0]}\n")
    _, together = planned([tmp_path / "experiment.yaml"], None)
    # 40 jobs at 1; 20, 10, 5 and 2 are promoted from 1, 2, 4 and 8.
    assert (together.total_steps, together.retrained_steps) == (640, 20 * 1 + 10 * 2 + 5 * 4 + 2 * 8)
    given(tmp_path, "policy: {name: asha, eta: 2, brackets: [0]}\n", script=SAVING)
    assert planned([tmp_path / "experiment.yaml"], None)[1].retrained_steps == 0


# ------------------------------------------------------------------------------------------------------------- too few


@pytest.mark.parametrize(
    ("jobs", "length", "said"),
    [
        (3, 4, "use at least 4 jobs or eta 3"),
        (2, 2, "use at least 4 iterations, eta 2, or the policy default"),
        (16, 64, "use at least 47 jobs or rungs 3"),
        (40, 1, "use at least 4 iterations, or the policy default"),
    ],
)
def test_halving_says_with_numbers_that_fit_that_there_is_too_little(jobs: int, length: int, said: str) -> None:
    note = AshaPolicy().review(ExperimentView("acc", "max", length, jobs_left=jobs))
    assert note.endswith(said)


def test_the_numbers_fit() -> None:
    terms = ExperimentView("acc", "max", 64, jobs_left=16)
    assert AshaPolicy(rungs=3).review(terms) == ""
    assert AshaPolicy().review(ExperimentView("acc", "max", 4, jobs_left=4)) == ""
    assert "nothing is promoted with fewer than 4" in AshaPolicy().review(ExperimentView("acc", "max", 4, jobs_left=3))


def test_brackets_that_are_too_narrow_for_any_number_of_jobs_are_no_advice_for_more_jobs() -> None:
    note = ShaPolicy(width=2).review(ExperimentView("acc", "max", 64, jobs_left=16))
    assert "too few" in note
    assert "jobs" not in note.partition("; use ")[2]


def test_too_few_jobs_are_told_before_the_start(tmp_path: Path) -> None:
    given(
        tmp_path, "policy: asha\n", SAVING, FILE.replace("jobs: 40, max_iterations: 16", "jobs: 3, max_iterations: 4")
    )
    (note,) = plan_notes([tmp_path / "experiment.yaml"])
    assert note.startswith("note: policy asha: 3 configurations are too few for 2 rungs at eta 4")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", SCRIPT),
        ("train.py", SAVING),
        ("train.py", "for epoch in range(9):\n    print(f'accuracy={epoch}')\n"),
        (
            "train.py",
            "from hopyard import Trainer\n\nclass T(Trainer):\n    def setup(self, hp, changed): self.x = hp['x']\n"
            "    def train(self): return {'accuracy': 1.0}\n    def save(self, folder): ...\n    def load(self, folder): ...\n",
        ),
        ("train.sh", "#!/bin/sh\necho score=1\n"),
    ],
)
def test_what_init_writes_passes_every_check(name: str, text: str, tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_text(text)
    script.chmod(0o755)
    file = tmp_path / "experiment.yaml"
    file.write_text(plan_for(script, tmp_path).text(name))
    submission = prepare(file)
    check_policy(submission)
    check_plugins(submission)
    check_imports(submission)
    assert policy_notes(submission) == []

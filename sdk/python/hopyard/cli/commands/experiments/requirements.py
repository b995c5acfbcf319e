"""Checks before a cluster starts that the packages which an experiment needs are installed here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hopyard._common.extras import install_command, package_command
from hopyard.cli.commands.experiments.preflight import checked_policy
from hopyard.client.submission import Submission
from hopyard.errors import InvalidInput
from hopyard.spec import ExperimentSpec, placed

_GENERATORS: Final = {
    "tpe": ("optuna",),
    "nsga2": ("optuna",),
    "cmaes": ("optuna", "cmaes"),
    "gp": ("optuna", "torch"),
}
"""The modules that generators need, in addition to those of the generator service."""

_PREDICTORS: Final[dict[str, tuple[str, ...]]] = {"mcmc": ("scipy", "numba", "threadpoolctl")}
_SAMPLERS: Final = {"emcee": ("emcee",)}
_EXTRAS: Final = {"torch": "torch", "emcee": "emcee"}
_OWN: Final = {"hopyard.torch": "torch"}
"""Modules of Hopyard that need another one."""


def check_plugins(submission: Submission) -> None:
    """Check that the packages which the generator and the predictor of an experiment need are installed here.

    The policy is checked by `checked_policy`, which creates it.

    Raises:
        SpecError: A package is missing. The error names the line of the file, the package, and the command that installs it.
    """
    spec = submission.spec
    policy = checked_policy(submission)
    effective = spec.with_generator(policy.generator) if policy is not None else spec
    generator, predictor = effective.generator, spec.predictor
    by = "" if generator.name == spec.generator.name else f" (of the policy {spec.policy.name})"
    _need(submission, "generator", f"{generator.name}{by}", _GENERATORS.get(generator.name, ()), "optuna")
    if "predictor" in spec.model_fields_set:
        modules = _PREDICTORS.get(predictor.name, ())
        if modules:
            modules += _SAMPLERS.get(str(predictor.parameters.get("sampler")), ())
        _need(submission, "predictor", predictor.name, modules, "curves")


def _need(submission: Submission, field: str, name: str, modules: tuple[str, ...], extra: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        extras = dict.fromkeys(_EXTRAS.get(module, extra) for module in missing)
        what = f"{field}: {name} needs {', '.join(missing)}, which is not installed here: {install_command(*extras)}"
        raise placed(InvalidInput(what), submission.text, submission.source)


def check_imports(submission: Submission) -> None:
    """Check that the modules which the program imports first are installed for the Python that will run it on this computer.

    Checked are the imports at the top level of a trainer's file or of a Python script, if this Python runs it: the file names no
    interpreter and no other search path. Imports in functions, in `try` or under a condition are not checked.

    Raises:
        SpecError: A module is missing. The error names the line of the file, the module, and the command that installs it.
    """
    spec, folder = submission.spec, submission.folder
    if folder is None or spec.interpreter is not None or "PYTHONPATH" in spec.environment:
        return
    found = program_file(spec, folder)
    if found is None:
        return
    field = "trainer" if spec.trainer is not None else "command"
    for module, line in _imports(found):
        needed = _OWN.get(module, module.partition(".")[0])
        if not _is_there(needed, {found.parent, folder, folder / (spec.working_directory or "")}):
            command = install_command(needed) if needed in _EXTRAS else package_command(needed)
            lacks = f"{module}, which is" if needed == module.partition(".")[0] else f"{module}, but {needed} is"
            what = f"{field}: {found.name}:{line} imports {lacks} not installed here: {command}"
            raise placed(InvalidInput(what), submission.text, submission.source)


def program_file(spec: ExperimentSpec, folder: Path) -> Path | None:
    """Return the Python file of a trainer or of a script that `python` runs; None: the program is something else.

    Args:
        spec: The experiment.
        folder: The folder of its code.
    """
    place = folder / (spec.working_directory or "")
    if spec.trainer is not None:
        name = spec.trainer.partition(":")[0]
        names = [name if name.endswith(".py") else f"{name.replace('.', '/')}.py"]
    elif spec.command is not None and spec.command[0] in ("python", "python3"):
        names = [one for one in spec.command[1:] if one.endswith(".py")][:1]
    else:
        names = []
    return next((home / name for name in names for home in (place, folder) if (home / name).is_file()), None)


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """Yield (module, line) of the absolute imports at the top level of a file; nothing if it is not valid for this Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((one.name, node.lineno) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module, node.lineno
            if node.module == "hopyard":
                yield from ((f"hopyard.{one.name}", node.lineno) for one in node.names)


def _is_there(module: str, folders: set[Path]) -> bool:
    if module in sys.stdlib_module_names or module == "hopyard":
        return True
    if any((folder / module).is_dir() or any(folder.glob(f"{module}.*")) for folder in folders):
        return True
    return find_spec(module) is not None

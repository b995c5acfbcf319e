"""Texts that commands print after an experiment was changed: the next command for the user, and notes on the experiment file."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._common import command_template
from hopyard._common.code_files import is_code
from hopyard._runtime.bundle import IGNORE_FILE, BundleError, why_left_out
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import HopyardError
from hopyard.spec import ExperimentSpec, SpecError, parse_spec
from hopyard.spec.load import read_fields
from hopyard.spec.models import REMOTE

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient

_NAMED_FILES: Final = 3
_CHANGED: Final = "changed since the experiment was created"


def unused_note(spec: ExperimentSpec) -> str:
    """Return a note on hyperparameters of the space that the command line of the program does not use; empty if it uses all."""
    command = spec.command or (spec.log.command if spec.log else ())
    names = command_template.unused(command, spec.space)
    if not names:
        return ""
    return (
        f"note: the command does not use {', '.join(f'{{{name}}}' for name in names)} of the space: these values reach "
        "the program only if it calls hopyard.hyperparameters() or reads HOPYARD_HYPERPARAMETERS"
    )


def mended(experiment: Experiment) -> str:
    """Return what the user must do before resuming an experiment whose policy failed.

    The result is the beginning of a message that ends with the command to resume.
    """
    policy = experiment.spec.get("policy") or {}
    name = policy.get("name", "") if isinstance(policy, Mapping) else str(policy)
    if name.startswith(REMOTE):
        return f"fix it, restart its process (hopyard policy serve ... --name {name.removeprefix(REMOTE)}), then:"
    return "after a fix, continue with:"


def next_step(experiment: Experiment, idle: Path | None, where: str, *, extended: bool) -> str:
    """Return a message with the command that continues the experiment after a change. Empty: it continues without a command.

    Args:
        experiment: The experiment after the change.
        idle: The data directory if no cluster serves it; None: a cluster runs.
        where: The options with which a command finds the same cluster, with a leading blank; empty: none needed.
        extended: Whether the change was an extension.
    """
    resume = f"hopyard resume {experiment.id}{where}"
    if experiment.state.ended:
        if extended:
            return f"the extension leaves nothing to train; add jobs: hopyard extend {experiment.id} --jobs N{where}"
        return f"it has ended; to continue it: hopyard extend {experiment.id}{where}"
    if experiment.state is ExperimentState.ENDING:
        return "it is ending; the change takes effect after its end"
    if idle is not None:
        return f"no cluster runs in {idle} to train it: {resume}"
    if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
        return f"it stays paused until: {resume}"
    return ""


async def tell_changed_code(client: AsyncClient, experiment: Experiment) -> None:
    """Print notes if the code in the current directory differs from the code with which an experiment was created.

    Nothing is printed if the code of the experiment cannot be fetched, because the notes must not prevent the command.
    """
    from hopyard.cli.output import say
    from hopyard.client.queries import code_of

    with suppress(HopyardError, OSError):
        code = await code_of(client, experiment)
        for note in (
            await asyncio.to_thread(changed_code_note, experiment.spec, code, Path.cwd()),
            await asyncio.to_thread(changed_policy_note, experiment.spec, code, Path.cwd(), experiment.id),
        ):
            if note:
                say(note)


def changed_code_note(spec: Mapping[str, object], code: Mapping[str, str], folder: Path) -> str:
    """Return a note on files of a folder that differ from the code with which an experiment was created; empty: there are none.

    The folder of the code is not recorded. If `folder` has the experiment's file or all files of the code, all files that it has are
    compared; otherwise only the program's own files, such as the script. Changed files that are code are named: those of the program,
    source and configuration. Others, such as results, are counted. Files that a `.hopyardignore` in `folder` excludes now do not
    count. Neither do the modules of the generator and the policy, which the services load, unless they belong to the program.

    Args:
        spec: The specification of the experiment.
        code: The code of the experiment, as `hopyard._runtime.bundle.code_files` returns it.
        folder: The folder to compare, usually the current directory.
    """
    own = _own_files(spec, code, folder)
    loaded = {*_module_files(_generator_modules(spec)), *_module_files(_policy_modules(spec))}.difference(own)
    changed = [name for name in _changed_files(spec, code, folder) if name not in loaded]
    named = [name for name in changed if name in own or is_code(name, executable=not code[name].startswith("0"))]
    others = len(changed) - len(named)
    more = f"{others} {'file that is' if others == 1 else 'files that are'} not code" if others else ""
    if not named:
        verb = "has" if others == 1 else "have"
        return f"note: {more} {verb} {_CHANGED}; its jobs keep the files of then" if more else ""
    listed = ", ".join(named[:_NAMED_FILES])
    if len(named) > _NAMED_FILES:
        listed += f" and {len(named) - _NAMED_FILES} more"
    too = f" (so {'has' if others == 1 else 'have'} {more})" if more else ""
    return (
        f"note: {listed} {'has' if len(named) == 1 else 'have'} {_CHANGED}{too}; its jobs keep the code of then. For the new code: "
        f"hopyard run {shlex.quote(_file_of(spec, folder) or 'experiment.yaml')}"
    )


def changed_policy_note(spec: Mapping[str, object], code: Mapping[str, str], folder: Path, experiment: str) -> str:
    """Return a note on modules of the policy that differ from those with which an experiment was created; empty: there are none.

    A policy `module:Class` is searched in the folder of the cluster before the recorded code.

    Args:
        spec: The specification of the experiment.
        code: The code of the experiment, as `hopyard._runtime.bundle.code_files` returns it.
        folder: The folder to compare, usually the current directory.
        experiment: The id of the experiment.
    """
    loaded = _module_files(_policy_modules(spec))
    changed = [name for name in _changed_files(spec, code, folder) if name in loaded]
    if not changed:
        return ""
    one = len(changed) == 1
    return (
        f"note: {', '.join(changed)}, {'a module' if one else 'modules'} of the policy, {'has' if one else 'have'} {_CHANGED}: the "
        f"next process of the policy loads the new {'file' if one else 'files'} if the cluster was started in this folder, else the "
        f"code of then. If it decides otherwise than recorded, the experiment is paused; to compare: hopyard replay {experiment}"
    )


def _changed_files(spec: Mapping[str, object], code: Mapping[str, str], folder: Path) -> list[str]:
    """Return the files of a folder that differ from the code of an experiment, those of the program first; see `changed_code_note`."""
    there = [name for name in code if (folder / name).is_file()]
    own = _own_files(spec, code, folder)
    if not own:
        return []
    compared = dict.fromkeys([*own, *there] if len(there) == len(code) or _file_of(spec, folder) is not None else own)
    changed = [name for name in compared if not _is_same(folder / name, code[name])]
    return [name for name in changed if name in own or not (name == IGNORE_FILE or _is_left_out(folder, name))]


def _own_files(spec: Mapping[str, object], code: Mapping[str, str], folder: Path) -> list[str]:
    """Return the files of the program that the code and the folder have."""
    return [name for name in _program_files(spec) if name in code and (folder / name).is_file()]


def _generator_modules(spec: Mapping[str, object]) -> list[str]:
    """Return the module of a generator `module:Class`, which the generator service loads; empty for other generators."""
    with suppress(SpecError):
        return _modules([parse_spec(spec).generator.name])
    return []


def _policy_modules(spec: Mapping[str, object]) -> list[str]:
    """Return the modules of a policy `module:Class` and its tuners, which the scheduler's process of the policy loads."""
    with suppress(SpecError):
        policy = parse_spec(spec).policy
        return [] if policy.remote else _modules(policy.names)
    return []


def _modules(names: Iterable[str]) -> list[str]:
    return [name.partition(":")[0] for name in names if ":" in name]


def _module_files(modules: Iterable[str]) -> list[str]:
    """Return the paths in the code that may be the files of modules."""
    return [f"{module.replace('.', '/')}{end}" for module in modules for end in (".py", "/__init__.py")]


def _file_of(spec: Mapping[str, object], folder: Path) -> str | None:
    return _experiment_file(folder, str(spec.get("name", "")))


def _program_files(spec: Mapping[str, object]) -> Iterable[str]:
    """Return paths in the code that may be the files of the program: its script, the file of its trainer, or its modules."""
    try:
        parsed = parse_spec(spec)
    except SpecError:  # A plugin of the experiment is not installed here.
        return []
    words = parsed.command or (parsed.log.command if parsed.log else ()) or ((parsed.trainer or "").partition(":")[0],)
    paths = [path for word in words for path in (word, f"{word.replace('.', '/')}.py")]
    return [os.path.normpath(os.path.join(parsed.working_directory or "", path)) for path in paths]


def _experiment_file(folder: Path, name: str) -> str | None:
    """Return the name of the file in a folder that describes the experiment with the name `name`; None: there is none."""
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml"), *folder.glob("*.json")]):
        with suppress(SpecError, OSError, UnicodeDecodeError):
            fields = read_fields(file.read_text(encoding="utf-8"))
            if "space" in fields and fields.get("name") == name:
                return file.name
    return None


def _is_same(file: Path, stored: str) -> bool:
    return stored.rpartition("\0")[2] == hashlib.sha256(file.read_bytes()).hexdigest()


def _is_left_out(folder: Path, name: str) -> bool:
    try:
        return bool(why_left_out(folder, name))
    except BundleError:  # A damaged .hopyardignore excludes nothing.
        return False

"""Prepares an experiment for `AsyncClient.create`: validates the specification and packs the code folder, before anything is sent."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hopyard._runtime import bundle
from hopyard._runtime.bundle import Bundle, BundleError
from hopyard.errors import InvalidInput
from hopyard.spec import ExperimentSpec, SpecError, canonical_json, load_spec, parse_spec
from hopyard.spec.load import read_fields

SpecLike = str | Path | Mapping[str, Any]
"""A specification of an experiment: the path of an experiment file; or its text (with line breaks, or starting with a brace); or its
contents as a mapping, in which `trainer` may be the trainer class itself.
"""

_PACK_TRIES: Final = 5
_NAMED_FILES: Final = 3
_PROGRAMS: Final = frozenset([".py", ".sh", ".r", ".jl", ".pl", ".js"])

_MISSING: Final = ("No such file", "FileNotFoundError", "not found", "does not exist", "cannot find", "can't open")
"""Texts of programs for a missing file."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A validated experiment that is ready to be created.

    Attributes:
        text: The text of the specification as it is sent.
        source: The name of the specification in error messages.
        spec: The parsed specification.
        folder: The folder of the training code; None: no folder is sent.
        files: Contents of files to send in addition, by their path in the code.
    """

    text: str
    source: str
    spec: ExperimentSpec
    folder: Path | None
    files: Mapping[str, bytes] = field(default_factory=dict)

    def interpreter(self, given: str) -> str:
        """Return the path of the Python interpreter to send with the experiment; empty: nodes need no path.

        If the specification names no interpreter, this is `given`. If it names one, nodes use that path, and the result is empty,
        with one exception: a path relative to the code folder whose file exists on this computer. Virtual environments are not
        part of the bundle, so the absolute path of the file is returned, and nodes on this computer use it.

        Args:
            given: The path to use if the specification names no interpreter.
        """
        named, working = self.spec.interpreter, self.spec.working_directory or ""
        if named is None:
            return given
        if self.folder is None or named.startswith("/") or working.startswith("/"):
            return ""
        place = (self.folder / working / named).absolute()
        return str(place) if place.exists() else ""


def prepare(given: SpecLike, folder: str | Path | None = None) -> Submission:
    """Read and validate a specification.

    Args:
        given: The specification: the path of an experiment file; or its text (with line breaks, or starting with a brace); or its
            contents as a mapping, in which `trainer` may be the trainer class itself.
        folder: The folder of the training code; None: the folder of the experiment file or of the trainer class, else
            the current directory.

    Raises:
        SpecError: The specification is invalid. The error lists all mistakes.
        InvalidInput: The experiment file, the folder, or the trainer's file in it is missing or unreadable.
    """
    if isinstance(given, Mapping):
        data, found = _with_trainer_path(given)
        spec = parse_spec(data)
        text, source, home = canonical_json(spec, defaults=False), "experiment", found
    elif isinstance(given, Path) or not is_text(given):
        file = Path(given)
        text, source, home = read_text(file), str(given), file.absolute().parent
        try:
            spec = load_spec(text, source)
        except SpecError:
            _refuse_other_data(file, text)
            raise
    else:
        text, source, home = given, "experiment", None
        spec = load_spec(text, source)
    chosen = Path(folder) if folder is not None else home if home is not None else Path.cwd()
    return Submission(text, source, spec, _code_folder(spec, chosen, source))


def pack(folder: Path | None, files: Mapping[str, bytes] | None = None) -> Bundle:
    """Pack a code folder and further files into a bundle. Files that disappear during packing, such as temporary files, are omitted.

    Args:
        folder: The code folder; None: only `files`.
        files: Contents of further files by their path in the code.

    Raises:
        InvalidInput: The folder contains files that cannot be packed, has more than 20,000 files or 100 MiB, or files
            disappeared during each of five tries.
    """
    gone = ""
    for _ in range(_PACK_TRIES):
        try:
            return bundle.pack(folder, extra=files)
        except FileNotFoundError as error:
            gone = str(error.filename)  # the next try lists the folder again, without this file
        except BundleError as error:
            raise InvalidInput(f"the code folder cannot be packed: {error}") from error
    raise InvalidInput(
        f"the code folder {folder} cannot be packed: files disappear during packing, such as {gone}; list them in "
        f"{bundle.IGNORE_FILE}"
    )


def is_text(given: str) -> bool:
    """Return whether `given` is the text of an experiment file and not its path: it has a line break, or begins with a brace."""
    return "\n" in given or given.lstrip().startswith("{")


def read_text(file: Path) -> str:
    """Return the text of an experiment file.

    Raises:
        InvalidInput: The file is missing, or is not UTF-8 text, or its name says that it is something else, such as a Python
            program. The message says how to get an experiment file.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{file}: this is a folder; {_file_in(file)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file}: cannot be read as UTF-8 text: {error}") from error
    match file.suffix.lower():
        case ".ipynb":
            raise InvalidInput(
                f"{file}: this is a notebook, not an experiment file; call client.search in it (docs/python.md), or save its code as a "
                "script and write an experiment file with: hopyard init SCRIPT"
            )
        case ".toml":
            raise InvalidInput(
                f"{file}: this is TOML; an experiment file is YAML or JSON: hopyard init SCRIPT writes one"
            )
        case suffix if suffix in _PROGRAMS:
            raise InvalidInput(f"{file}: this is a program, not an experiment file; {_init(file)}")
    return text


def _init(script: Path) -> str:
    place = "" if script.parent == Path() else f" -o {shlex.quote(str(script.parent / 'experiment.yaml'))}"
    return f"write one for it with: hopyard init {shlex.quote(str(script))}{place}"


def _file_in(folder: Path) -> str:
    """Return what to do with a folder that was given in place of an experiment file: name a file in it, or write one."""
    files = [
        file for suffix in ("*.yaml", "*.yml", "*.json") for file in sorted(folder.glob(suffix)) if _is_experiment(file)
    ]
    if files:
        return f"name the experiment file in it: {', '.join(map(str, files[:_NAMED_FILES]))}"
    scripts = sorted(file for file in folder.glob("*.py") if not file.name.startswith(("_", "test_")))
    chosen = next(
        (script for script in scripts if script.stem == "train"), scripts[0] if scripts else folder / "SCRIPT"
    )
    return f"it has no experiment file; {_init(chosen)}"


def _is_experiment(file: Path) -> bool:
    with suppress(SpecError, OSError, UnicodeDecodeError):
        return "space" in read_fields(file.read_text(encoding="utf-8"))
    return False


def _refuse_other_data(file: Path, text: str) -> None:
    """Raise InvalidInput if a file is a mapping without any field of an experiment file, such as `package.json`."""
    with suppress(SpecError):
        if (fields := read_fields(text)) and not fields.keys() & (ExperimentSpec.model_fields.keys() - {"name"}):
            raise InvalidInput(
                f"{file}: this is not an experiment file: it has none of the fields trainer, command, log, metric and space; "
                "hopyard init SCRIPT writes one"
            )


def _with_trainer_path(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Path | None]:
    """Return `given` with a trainer class replaced by "FILE.py:CLASS", and the folder of that file; None: `given` names no class.

    Raises:
        InvalidInput: The class was not defined in a file.
    """
    trainer = given.get("trainer")
    if not isinstance(trainer, type):
        return given, None
    try:
        source = inspect.getsourcefile(trainer)
    except TypeError:
        source = None
    if source is None or not Path(source).is_file():
        raise InvalidInput(
            f"trainer {trainer.__qualname__} was not defined in a file, so its code cannot be sent to the slots; "
            "put the class into a file"
        )
    file = Path(source).absolute()
    return {**given, "trainer": f"{file.name}:{trainer.__qualname__}"}, file.parent


def _code_folder(spec: ExperimentSpec, folder: Path, source: str) -> Path | None:
    if not folder.is_dir():
        raise InvalidInput(f"{source}: the code folder {folder} is not a folder")
    if spec.trainer is not None:
        file, _, _ = spec.trainer.partition(":")
        if file.endswith(".py") and not (folder / file).is_file():
            raise InvalidInput(f"{source}: trainer: there is no file {file} in {folder}")
        _check_packed(source, "trainer", folder, file)
    if spec.working_directory is not None and not spec.working_directory.startswith("/"):
        _check_packed(source, "working_directory", folder, spec.working_directory)
    return folder


def _check_packed(source: str, field: str, folder: Path, path: str) -> None:
    why = _left_out(folder, path)
    if why:
        raise InvalidInput(f"{source}: {field}: {_unpacked(folder, path)}: {why}")


def _left_out(folder: Path, path: str) -> str:
    """Return why `pack` leaves out a path, see `bundle.why_left_out`. Empty also if the ignore file is invalid: `pack` reports that."""
    with suppress(BundleError, OSError, UnicodeDecodeError):
        return bundle.why_left_out(folder, path)
    return ""


def left_out_note(submission: Submission) -> str:
    """Return a note on paths in the experiment file that exist, but are not sent to the nodes; empty if there are none.

    Examined are the words of the command and the values of the environment, relative to the working directory. A program may
    create such a path itself, so this is no error.
    """
    spec, folder = submission.spec, submission.folder
    if folder is None:
        return ""
    command = spec.command or (spec.log.command if spec.log else ())
    words = [*command, *(word.partition("=")[2] for word in command), *spec.environment.values()]
    found = _all_left_out(folder, spec.working_directory or "", words)
    return "; ".join(f"{_unpacked(folder, path)}: {why}" for path, why in found.items())


def missing_file_note(submission: Submission, error: str) -> str:
    """Return a note if a program failed because of a file that exists in the code folder but was not sent to the nodes; else empty.

    Args:
        submission: The experiment.
        error: The error message of the program, with its traceback or its last lines, of which those about a missing file are searched.
    """
    if submission.folder is None:
        return ""
    words = _words_about_missing(error)
    found = _all_left_out(submission.folder, submission.spec.working_directory or "", words)
    return "; ".join(f"{_unpacked(submission.folder, path)}: {why}" for path, why in found.items())


def _unpacked(folder: Path, path: str) -> str:
    return f"{path} exists{'' if path.startswith('..') else f' in {folder}'} but is not packed for the nodes"


def _words_about_missing(error: str) -> list[str]:
    """Return words that may be paths from the lines of an error message about a missing file."""
    words: list[str] = []
    for line in error.splitlines():
        if any(text in line for text in _MISSING):
            quoted = re.findall(r"""(['"])(.+?)\1""", line)
            words += [text for _, text in quoted] + [word.strip("'\"`:;,()[]") for word in line.split()]
    # A program may name its file by the absolute path on the node: each end of the path may be its path in the code folder.
    return [tail for word in words for tail in _tails(word)]


def _tails(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[count:]) for count in range(1, len(parts))] if path.startswith("/") else [path]


def _all_left_out(folder: Path, working_directory: str, paths: Iterable[str]) -> dict[str, str]:
    """Return those of the relative paths that exist but are not packed, relative to the code folder, each with the reason."""
    found: dict[str, str] = {}
    for path in paths:
        if path and not path.startswith("/"):
            name = os.path.normpath(os.path.join(working_directory, path))
            if why := _left_out(folder, name):
                found[name] = why
    return found

"""Prepares an experiment for `AsyncClient.create`: validates the specification and packs the code folder, before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hopyard._runtime import bundle
from hopyard._runtime.bundle import Bundle, BundleError
from hopyard.errors import InvalidInput
from hopyard.spec import ExperimentSpec, canonical_json, load_spec, parse_spec

SpecLike = str | Path | Mapping[str, Any]
"""A specification of an experiment: the path of an experiment file; or its text (with line breaks, or starting with a brace); or its
contents as a mapping, in which `trainer` may be the trainer class itself.
"""


_PACK_TRIES: Final = 5


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
        spec = load_spec(text, source)
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
        InvalidInput: The file is missing, or is not UTF-8 text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{file}: this is a folder; name the experiment file in it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file}: cannot be read as UTF-8 text: {error}") from error


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
    return folder

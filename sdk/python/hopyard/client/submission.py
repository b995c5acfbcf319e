"""What `create` was given, made ready to send: the specification checked here already, and the code packed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard._runtime import bundle
from hopyard._runtime.bundle import Bundle, BundleError
from hopyard.errors import InvalidInput
from hopyard.spec import ExperimentSpec, canonical_json, load_spec, parse_spec

SpecLike = str | Path | Mapping[str, Any]
"""A path; or the text of an experiment file (it has line breaks, or starts with a brace); or its contents as a mapping,
in which `trainer` may be the class itself."""


_PACK_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Submission:
    """An experiment ready to be created.

    Attributes:
        text: The specification as it is sent.
        source: How messages call it.
        spec: What it says.
        folder: The folder of its code; None: nothing of it has to travel.
    """

    text: str
    source: str
    spec: ExperimentSpec
    folder: Path | None

    def interpreter(self, given: str) -> str:
        """The Python that the nodes are told of, where the file does not say all: what it names wins over `given`.

        A relative one that lies beside the code does not travel with it; nodes on this machine find it here.
        """
        named, working = self.spec.interpreter, self.spec.working_directory or ""
        if named is None:
            return given
        if self.folder is None or named.startswith("/") or working.startswith("/"):
            return ""
        place = (self.folder / working / named).absolute()
        return str(place) if place.exists() else ""


def prepare(given: SpecLike, folder: str | Path | None = None) -> Submission:
    """Read and check a specification.

    Args:
        given: See `SpecLike`.
        folder: Where the training code lies; None: beside the experiment file, or beside the trainer's class, else the
            current directory.

    Raises:
        SpecError: All mistakes in it.
        InvalidInput: The file, the folder, or the trainer's file in it is not there or cannot be read.
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


def pack(folder: Path) -> Bundle:
    """Pack a code folder. Files that vanish meanwhile, such as an editor's, are left out.

    Raises:
        InvalidInput: The folder holds what cannot travel, or too much, or changes all the time.
    """
    gone = ""
    for _ in range(_PACK_TRIES):
        try:
            return bundle.pack(folder)
        except FileNotFoundError as error:
            gone = str(error.filename)  # the next look will not find it at all
        except BundleError as error:
            raise InvalidInput(f"the code folder cannot be packed: {error}") from error
    raise InvalidInput(
        f"the code folder {folder} cannot be packed: files vanish while they are read, {gone} last; list them in "
        f"{bundle.IGNORE_FILE}"
    )


def is_text(given: str) -> bool:
    """Whether it is the text of an experiment file, and not its path."""
    return "\n" in given or given.lstrip().startswith("{")


def read_text(file: Path) -> str:
    """The text of an experiment file.

    Raises:
        InvalidInput: it is not there, or is no UTF-8 text.
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
    """Put `file.py:Class` where the trainer's class itself is given."""
    trainer = given.get("trainer")
    if not isinstance(trainer, type):
        return given, None
    try:
        source = inspect.getsourcefile(trainer)
    except TypeError:
        source = None
    if source is None or not Path(source).is_file():
        raise InvalidInput(
            f"trainer {trainer.__qualname__} was not defined in a file, so its code cannot travel to the machines; "
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

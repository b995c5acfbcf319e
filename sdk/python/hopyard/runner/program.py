"""Finding the trainer class of a code bundle: "file.py:Class"."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from hopyard.trainer import Trainer


class ProgramError(Exception):
    """The trainer could not be loaded from the experiment's code: the user's mistake.

    Attributes:
        name: what was asked for.
    """

    def __init__(self, name: str, reason: str) -> None:
        """Say what was asked for and why it failed."""
        super().__init__(f"import of {name}: {reason}")
        self.name = name


class ProgramLoader:
    """Loads trainer classes; the last one stays imported, so that the next run of the same code costs nothing."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._loaded: tuple[Path, str] | None = None
        self._class: type[Trainer] | None = None

    def load(self, folder: Path, name: str) -> type[Trainer]:
        """Return the class, importing its file if it is not the one loaded last.

        While it runs, code sees the bundle's folder as working directory and first import path, as if it had been
        started there.

        Raises:
            ProgramError: the name is not "file.py:Class", or the file is not in the folder, cannot be imported, or
                does not define such a trainer; the process should not be used for another run.
        """
        if self._class is not None and self._loaded == (folder, name):
            return self._class
        if self._loaded is not None and self._loaded[0] != folder:
            _forget(self._loaded[0])
        self._loaded = self._class = None
        loaded = _load(folder, name)
        self._loaded, self._class = (folder, name), loaded
        return loaded


def _load(folder: Path, name: str) -> type[Trainer]:
    file_name, separator, class_name = name.partition(":")
    if not separator or not file_name.endswith(".py") or not class_name.isidentifier():
        raise ProgramError(name, "a trainer is named FILE.py:CLASS, such as train.py:DigitsTrainer")
    file = folder / file_name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ProgramError(name, f"{file_name} leads out of the experiment's code")
    if not file.is_file():
        raise ProgramError(name, f"there is no {file_name} in the experiment's code ({_shown_files(folder)})")
    os.chdir(folder)
    for path in (str(file.parent), str(folder)):
        if path not in sys.path:
            sys.path.insert(0, path)
    module_name = _module_name(folder, file)
    present = sys.modules.get(module_name)
    if present is not None and not _lies_in(present, folder):
        raise ProgramError(name, f"{file_name} has the name of a module that is loaded already; rename it")
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, class_name, None)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ProgramError(name, reason) from error
    if found is None:
        raise ProgramError(name, f"{file_name} defines no {class_name}")
    if not (isinstance(found, type) and issubclass(found, Trainer)):
        raise ProgramError(name, f"{class_name} is {found!r}; allowed: a subclass of hopyard.Trainer")
    return found


def _module_name(folder: Path, file: Path) -> str:
    """The file's import name: with its packages, as far up as they are packages."""
    parts = [file.stem]
    parent = file.parent
    while parent != folder and (parent / "__init__.py").is_file():
        parts.insert(0, parent.name)
        parent = parent.parent
    if str(parent) not in sys.path:
        sys.path.insert(0, str(parent))
    return ".".join(parts)


def _lies_in(module: object, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder)


def _forget(folder: Path) -> None:
    """Forget the modules and import paths of a bundle whose code is not wanted any more."""
    for module_name in [name for name, module in list(sys.modules.items()) if _lies_in(module, folder)]:
        del sys.modules[module_name]
    sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(folder)]


def _shown_files(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.py"))
    return "its folder holds " + (", ".join(names[:10]) if names else "no Python file")

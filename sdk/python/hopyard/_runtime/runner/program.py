"""Loads a trainer class by its name: "file.py:Class" in a code bundle, or "package.module:Class"."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from hopyard.trainer import Trainer, data_cache


class ProgramError(Exception):
    """Raised if the trainer could not be loaded from the experiment's code: an error of the user.

    Args:
        name: The trainer as the experiment names it.
        reason: Why it could not be loaded.

    Attributes:
        name: The argument of this name.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"import of {name}: {reason}")
        self.name = name

    @property
    def lasting(self) -> bool:
        """Whether each attempt on this node would fail in the same way, because the cause is the code or a missing module."""
        return self.__cause__ is None or isinstance(self.__cause__, ImportError | SyntaxError | NameError)


class ProgramLoader:
    """Loads the trainer classes of a process's runs. The last class is cached: the next run of the same code needs no import."""

    def __init__(self) -> None:
        self._loaded: tuple[Path, str] | None = None
        self._class: type[Trainer] | None = None

    def load(self, folder: Path, name: str, working: Path | None = None) -> type[Trainer]:
        """Return a trainer class, after importing its module.

        If the previous call loaded the same name from the same folder, return its class again and change nothing. Otherwise, put the
        bundle's folder first on the import path. If the previous class was of another bundle, remove its modules and clear the data
        cache.

        Args:
            folder: Folder of the code bundle.
            name: "file.py:Class" with a file of the bundle, or "package.module:Class" with a module in the bundle or an installed
                one.
            working: Working directory to change to; None: `folder`.

        Raises:
            ProgramError: The name is malformed, the file is missing, the import failed, or the module does not define
                a subclass of `Trainer` with this name. The process must then not be used for another run.
        """
        if self._class is not None and self._loaded == (folder, name):
            return self._class
        if self._loaded is not None and self._loaded[0] != folder:
            _forget(self._loaded[0])
            data_cache().clear()
        self._loaded = self._class = None
        loaded = _load(folder, name, working or folder)
        self._loaded, self._class = (folder, name), loaded
        return loaded


def _load(folder: Path, name: str, working: Path) -> type[Trainer]:
    place, separator, class_name = name.partition(":")
    is_file = place.endswith(".py")
    if not separator or not class_name.isidentifier() or not (is_file or _is_module(place)):
        raise ProgramError(
            name, "a trainer is named FILE.py:CLASS or PACKAGE.MODULE:CLASS, such as train.py:DigitsTrainer"
        )
    if is_file:
        module_name = _module_of_file(folder, place, name)
    else:
        module_name = place
        _make_importable(folder)
    os.chdir(working)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, class_name, None)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            # The missing module is the trainer's own, not one that it imports.
            reason += f" ({_places(folder)})"
        raise ProgramError(name, reason) from error
    if found is None:
        raise ProgramError(name, f"{place} defines no {class_name}")
    if not (isinstance(found, type) and issubclass(found, Trainer)):
        raise ProgramError(name, f"{class_name} is {found!r}; allowed: a subclass of hopyard.Trainer")
    return found


def _is_module(place: str) -> bool:
    return all(part.isidentifier() for part in place.split("."))


def _places(folder: Path) -> str:
    return f"it is neither in the experiment's code, {_shown_files(folder)}, nor installed for {sys.executable}"


def _module_of_file(folder: Path, file_name: str, name: str) -> str:
    """Return the import name of a file in the bundle, after adding its folder to the import path.

    Args:
        folder: Folder of the code bundle.
        file_name: Path of the file, relative to `folder`.
        name: Name of the trainer, for error messages.

    Raises:
        ProgramError: The file does not exist, is outside the bundle, or has the name of a module that is already loaded.
    """
    file = folder / file_name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ProgramError(name, f"{file_name} leads out of the experiment's code")
    if not file.is_file():
        raise ProgramError(name, f"there is no {file_name} in the experiment's code ({_shown_files(folder)})")
    _make_importable(file.parent)
    _make_importable(folder)
    module_name = _module_name(folder, file)
    present = sys.modules.get(module_name)
    if present is not None and not _lies_in(present, folder):
        raise ProgramError(name, f"{file_name} has the name of a module that is loaded already; rename it")
    return module_name


def _module_name(folder: Path, file: Path) -> str:
    """Return the import name of the file `file`, including the packages that contain it, in the bundle with the folder `folder`."""
    parts = [file.stem]
    parent = file.parent
    while parent != folder and (parent / "__init__.py").is_file():
        parts.insert(0, parent.name)
        parent = parent.parent
    _make_importable(parent)
    return ".".join(parts)


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _lies_in(module: object, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder)


def _forget(folder: Path) -> None:
    """Remove the modules and import paths of the bundle in `folder` from this process."""
    for module_name in [name for name, module in list(sys.modules.items()) if _lies_in(module, folder)]:
        del sys.modules[module_name]
    sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(folder)]


def _shown_files(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.py"))
    return "its folder holds " + (", ".join(names[:10]) if names else "no Python file")

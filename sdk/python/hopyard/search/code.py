"""Finds the code that training processes need for an objective function: a folder, and files that are written for it."""

from __future__ import annotations

import functools
import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.search.module_text import module_text
from hopyard.search.source_text import imported_modules

WRITTEN: Final = "hopyard_objective"
"""Name of the module that is written for a function of a script or of a notebook."""


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The code of an objective function, as it is sent to the nodes.

    Attributes:
        module: Name of the module that defines the function.
        function: Name of the function in it.
        folder: Folder whose files are sent; None: no folder.
        files: Content of each file that is sent in addition, by its path relative to the top folder of the sent code.
    """

    module: str
    function: str
    folder: Path | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


def function_code(function: Callable[..., Any], folder: str | Path | None = None) -> FunctionCode:
    """Return the code to send for an objective function.

    A function of an imported module is sent with the folder from which the module is imported. Of a script or a notebook, the function
    is sent with everything that it uses from there (`module_text`), but not the rest, which may start the search again. A script is
    sent with its folder, a notebook with those modules of the working directory that the function imports.

    Args:
        function: The function.
        folder: Folder to send instead of the folder of the module or script; None: that folder, if there is one.

    Raises:
        InvalidInput: The function cannot be sent; the message says why, and what to do.
    """
    plain = _checked(function)
    module = plain.__module__
    given = None if folder is None else Path(folder).absolute()
    if given is not None and not given.is_dir():
        raise InvalidInput(f"folder: {given} is not a folder; name the folder of the code that the function needs")
    if module != "__main__" and "<locals>" not in plain.__qualname__:
        if getattr(sys.modules.get(module), plain.__name__, None) is not plain:
            raise InvalidInput(f"{module} has no function {plain.__name__}, or it has another one now; import it again")
        return FunctionCode(module, plain.__name__, given or _module_folder(module))
    text = module_text(plain)
    files = {f"{WRITTEN}.py": text.encode()}
    home = given or _module_folder(module)
    if home is not None and (home / f"{WRITTEN}.py").exists():
        raise InvalidInput(f"{home / WRITTEN}.py: Hopyard writes a module of this name; rename the file")
    if home is None:
        files |= _local_modules(text, Path.cwd())
    return FunctionCode(WRITTEN, plain.__name__, home, files)


def _checked(function: object) -> FunctionType:
    """Return `function` if it can be sent.

    Raises:
        InvalidInput: It is not a function defined with `def`, is async or a generator, or cannot be called with one argument.
    """
    say = "allowed: a function defined with def, such as def objective(trial)"
    if isinstance(function, type):
        raise InvalidInput(
            f"search: found the class {function.__qualname__}; {say}. A Trainer class is the `trainer` of client.create({{...}})"
        )
    if isinstance(function, functools.partial):
        raise InvalidInput(f"search: found a functools.partial; {say}, which calls it")
    if isinstance(function, MethodType):
        raise InvalidInput(
            f"search: found the method {function.__qualname__} of an object; {say}, which creates the object"
        )
    if not isinstance(function, FunctionType):
        raise InvalidInput(f"search: found {function!r:.80} of type {type(function).__qualname__}; {say}")
    if function.__name__ == "<lambda>":
        raise InvalidInput(f"search: found a lambda, which has no name; {say}")
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise InvalidInput(
            f"search: {function.__name__} is a generator or an async function; {say} that returns its result"
        )
    signature = inspect.signature(function)
    try:
        signature.bind(None)
    except TypeError as error:
        raise InvalidInput(
            f"search: {function.__name__}{signature} cannot be called with one argument, its trial: {error}; {say}"
        ) from None
    return function


def _module_folder(module: str) -> Path | None:
    """Return the folder from which a module is imported: the one that contains its top-level package, or the module itself.

    None: the module was not loaded from a file, or it is installed (standard library or site-packages); nodes must have it installed.
    """
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if not isinstance(file, str) or not Path(file).is_file():
        return None
    spec = getattr(loaded, "__spec__", None)
    name = spec.name if module == "__main__" and spec is not None else module
    path = Path(file).absolute()
    # The parts of a package's name are the folders above the module.
    depth = name.count(".") + (path.name == "__init__.py")
    folder = path.parents[depth]
    return None if any(folder.is_relative_to(place) for place in _installed()) else folder


def _installed() -> Iterable[Path]:
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    return [Path(place) for place in places if place]


def _local_modules(text: str, folder: Path) -> dict[str, bytes]:
    """Return the files of all modules in a folder that a source text imports, directly or through other modules of the folder.

    Of a package, all files are returned.

    Args:
        text: The source text.
        folder: The folder.

    Returns:
        The content of each file by its path relative to `folder`.
    """
    files = dict[str, bytes]()
    queue, seen = [text], set[str]()
    while queue:
        for name in imported_modules(queue.pop()) - seen:
            seen.add(name)
            module, package = folder / f"{name}.py", folder / name
            if module.is_file():
                found = [module]
            elif (package / "__init__.py").is_file():
                found = [
                    file for file in sorted(package.rglob("*")) if file.is_file() and "__pycache__" not in file.parts
                ]
            else:
                continue
            for file in found:
                content = file.read_bytes()
                files[file.relative_to(folder).as_posix()] = content
                if file.suffix == ".py":
                    queue.append(content.decode(errors="replace"))
    return files

"""Distinguishes source and configuration files from data and results by their names."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

_SOURCE: Final = (
    ".py .pyi .pyx .pxd .ipynb .sh .bash .zsh .r .jl .rb .pl .lua .js .mjs .ts .java .kt .scala .go .rs .swift .cs .m .sql "
    ".c .cc .cpp .cxx .h .hh .hpp .hxx .cu .cuh .f .f90 .f95 .cmake .mk .j2 .jinja .proto .stan"
)
_CONFIGURATION: Final = ".yaml .yml .toml .json .jsonc .json5 .jsonnet .ini .cfg .conf .config .env .properties .gin"
_SUFFIXES: Final = frozenset([*_SOURCE.split(), *_CONFIGURATION.split()])
_NAMES: Final = frozenset(["dockerfile", "makefile", "rakefile", "gemfile", "pipfile", "snakefile"])
_PREFIXES: Final = ("requirements", "constraints", ".env")


def is_code(path: str, *, executable: bool = False) -> bool:
    """Return whether a file is source or configuration that training may read as code, rather than data or results.

    The name decides: its suffix, or a name such as `Makefile`, `requirements-gpu.txt` or `.env`. A file without a suffix is code if it
    is executable.

    Args:
        path: The path of the file, with "/" as separator.
        executable: Whether the file is executable.
    """
    name = PurePosixPath(path.lower())
    if name.suffix in _SUFFIXES or name.name in _NAMES or name.name.startswith(_PREFIXES):
        return True
    return executable and not name.suffix

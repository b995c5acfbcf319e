"""The extras of Hopyard (optional dependencies): the packages that they lack here, and the command that installs these.

The commands name the packages themselves. Hopyard is installed from a checkout, and `pip install 'hopyard[NAME]'` would take whatever
has that name in the public index.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*([^;]*)")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_MODULES: Final = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python-headless"}


def install_command(*extras: str, requirements: Sequence[str] | None = None) -> str:
    """Return the command that installs the packages which extras lack here, such as "pip install 'optuna>=5.0,<6' 'cmaes>=0.12'".

    If none is missing or the packages are unknown, the command installs the extras from a checkout.

    Args:
        extras: Names of extras.
        requirements: The requirements in the metadata of Hopyard, with their markers; None: those of the installed Hopyard.
    """
    lines = list(requirements) if requirements is not None else _installed()
    wanted = dict.fromkeys(
        text for extra in extras for name, text in packages_of(extra, lines) if not is_installed(name)
    )
    if not wanted:
        return f"pip install './hopyard[{','.join(extras)}]', where ./hopyard is a checkout"
    return f"pip install {' '.join(map(shlex.quote, wanted))}"


def package_command(module: str) -> str:
    """Return the command that installs a module that is not part of Hopyard, given by the first part of its name."""
    return f"pip install {_MODULES.get(module, module)}"


def packages_of(name: str, requirements: list[str], seen: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield (name, requirement) of the packages of an extra, including those of extras that it contains.

    Args:
        name: Name of the extra.
        requirements: The requirements in the metadata of Hopyard, with their markers.
        seen: Names of the extras that the caller is expanding, which are skipped to end cycles.
    """
    for line in requirements:
        marker = _EXTRA.search(line)
        found = _REQUIREMENT.match(line)
        if marker is None or marker[1] != name or found is None:
            continue
        package, inner, limits = found[1], found[2] or "", found[3].strip()
        if package.lower() == "hopyard":
            for one in _names(inner):
                if one not in seen:
                    yield from packages_of(one, requirements, seen | {name})
        else:
            yield package, f"{package}{f'[{inner}]' if inner else ''}{limits}"


def is_installed(package: str) -> bool:
    """Return whether a distribution with the name `package` is installed."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _names(text: str) -> Iterable[str]:
    return filter(None, (one.strip() for one in text.split(",")))


def _installed() -> list[str]:
    try:
        return list(requires("hopyard") or ())
    except PackageNotFoundError:
        return []

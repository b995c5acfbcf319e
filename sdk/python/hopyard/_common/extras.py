"""The extras of Hopyard (optional dependencies): the packages that they lack here, and the command that installs these.

The commands name the packages themselves, or the folder from which Hopyard is installed. By its name alone, pip would install whatever
has that name in the public index.
"""

from __future__ import annotations

import json
import re
import shlex
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final, NamedTuple

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*([^;]*)")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_MODULES: Final = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python-headless"}


def install_command(*extras: str, requirements: Sequence[str] | None = None) -> str:
    """Return the command that installs the packages which extras lack here, such as "pip install 'optuna>=5.0,<6' 'cmaes>=0.12'".

    If none is missing or the packages are unknown, the command installs the extras from the folder from which Hopyard is installed,
    or from a checkout if that is unknown.

    Args:
        extras: Names of extras.
        requirements: The requirements in the metadata of Hopyard, with their markers; None: those of the installed Hopyard.
    """
    lines = list(requirements) if requirements is not None else _installed()
    wanted = dict.fromkeys(
        text for extra in extras for name, text in packages_of(extra, lines) if not is_installed(name)
    )
    return f"pip install {' '.join(map(shlex.quote, wanted))}" if wanted else source_command(*extras)


def source_command(*extras: str) -> str:
    """Return the command that installs extras from the folder from which Hopyard is installed; if that is unknown, from a checkout."""
    names = f"[{','.join(extras)}]"
    source = source_folder()
    if source is None:
        return f"pip install './hopyard{names}', where ./hopyard is a checkout"
    return f"pip install {'-e ' if source.editable else ''}{shlex.quote(f'{source.path}{names}')}"


class SourceFolder(NamedTuple):
    """The folder from which Hopyard is installed.

    Attributes:
        path: Its absolute path.
        editable: Whether changes in the folder take effect without a new installation.
    """

    path: Path
    editable: bool


def source_folder() -> SourceFolder | None:
    """Return the folder from which Hopyard is installed, by the `direct_url.json` of its distribution; None: there is none any more."""
    try:
        given = json.loads(Distribution.from_name("hopyard").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    url = urllib.parse.urlsplit(str(given.get("url", "")))
    path = Path(urllib.request.url2pathname(url.path))
    if url.scheme != "file" or not (path / "pyproject.toml").is_file():
        return None
    return SourceFolder(path, bool(given.get("dir_info", {}).get("editable")))


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

"""What a study's experiment says: an experiment file's program, metric and space, and no trials of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard.client.submission import SpecLike, is_text, read_text
from hopyard.errors import InvalidInput
from hopyard.space import Space
from hopyard.space.values import canonical_json
from hopyard.spec import read_fields


def terms_of(
    given: SpecLike | None, folder: str | Path | None, idle: float, more: Mapping[str, Any]
) -> tuple[dict[str, Any], str | Path | None]:
    """The terms of a study, and the folder of its code.

    Args:
        given: A path, text or mapping as for `Client.create`; None: `more` says all.
        folder: Where the code lies; None: beside the file.
        idle: Seconds for which it stays open when nobody has it open.
        more: Fields that take the place of those given.

    Raises:
        SpecError: The file cannot be read as YAML.
        InvalidInput: There is no such file.
    """
    data: dict[str, Any]
    if given is None:
        data = {}
    elif isinstance(given, Mapping):
        data = dict(given)
    elif isinstance(given, str) and is_text(given):
        data = read_fields(given)
    else:
        file = Path(given)
        data = read_fields(read_text(file), str(given))
        folder = file.absolute().parent if folder is None else folder
    data |= {"name": "study", "policy": "stage_tree", **data, **more}
    stop = data.get("stop") or {}
    if not isinstance(stop, Mapping):
        raise InvalidInput(f"stop: needs a mapping, found {stop!r:.80}")
    # A study tries nothing by itself.
    data["stop"] = {**stop, "jobs": 0, "idle": idle}
    return data, folder


def space_of(spec: Mapping[str, Any]) -> Space:
    """The space of an experiment's specification, with its constraints."""
    return Space.from_dict(spec["space"]).constrained(tuple(spec.get("constraints") or ()))


def request_of(configuration: Mapping[str, Any], position: int) -> str:
    """The name of a request: equal evaluations of a study are one."""
    text = canonical_json({"configuration": configuration, "position": position})
    return f"eval/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

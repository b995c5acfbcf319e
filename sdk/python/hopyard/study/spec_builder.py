"""Builds the specification of a study's experiment from an experiment file and keyword arguments."""

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
    """Return the specification of a study as a mapping, and the folder of its training code.

    The folder is None if neither `folder` nor a file names it; then the client chooses it.

    The policy is `stage_tree` unless given, and the experiment creates no jobs by itself.

    Args:
        given: A path, text or mapping as for `Client.create`; None: `more` is the complete specification.
        folder: The folder of the code; None: the folder of the experiment file, if `given` is a path.
        idle: Seconds after which the experiment ends if no client has the study open.
        more: Fields of an experiment file that override those of `given`.

    Raises:
        SpecError: The file is not valid YAML.
        InvalidInput: The file is missing, or `stop` is not a mapping.
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
    # The experiment creates no jobs by itself.
    data["stop"] = {**stop, "jobs": 0, "idle": idle}
    return data, folder


def space_of(spec: Mapping[str, Any]) -> Space:
    """Return the search space of an experiment's specification, including its constraints.

    Args:
        spec: The fields of the specification by name, including `space`.

    Raises:
        SpaceError: The space or a constraint is invalid.
    """
    return Space.from_dict(spec["space"]).constrained(tuple(spec.get("constraints") or ()))


def request_of(configuration: Mapping[str, Any], position: int) -> str:
    """Return the request key derived from a configuration and a position. Equal requests have equal keys."""
    text = canonical_json({"configuration": configuration, "position": position})
    return f"eval/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

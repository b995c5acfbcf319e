"""Composes YAML of unknown origin with limits: a short text can have very many or deeply nested nodes."""

from __future__ import annotations

import time
from typing import Final

import yaml

MAX_NODES: Final = 100_000
"""Maximum number of nodes (values and keys) in a text; an alias counts as one."""

MAX_DEPTH: Final = 40
"""Maximum depth of nested lists and mappings. A message can carry a configuration of about this depth."""

MAX_CPU_SECONDS: Final = 20.0
"""Maximum CPU time that composing takes in its thread."""


class OversizedYaml(Exception):
    """Raised if a text exceeds a limit; the message says what is needed."""


class BoundedLoader(yaml.SafeLoader):
    """A YAML loader that raises OversizedYaml if a text exceeds a limit, before it has read the rest of the text."""

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._nodes = 0
        self._depth = 0
        self._end = time.thread_time() + MAX_CPU_SECONDS

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node of the text.

        Raises:
            OversizedYaml: The text exceeds a limit.
        """
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise OversizedYaml(f"needs at most {MAX_NODES} values")
        if self._depth > MAX_DEPTH:
            raise OversizedYaml(f"is nested too deeply: needs at most {MAX_DEPTH} levels")
        if time.thread_time() > self._end:
            raise OversizedYaml(f"takes too long to read: needs at most {MAX_CPU_SECONDS:g} s")
        self._depth += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self._depth -= 1


def top_level_keys(text: str | bytes) -> frozenset[str]:
    """Return the keys of the mapping in a YAML text, without constructing its values.

    Empty if the text is not YAML, not a mapping, or exceeds a limit.
    """
    try:
        node = yaml.compose(text, Loader=BoundedLoader)
    except (yaml.YAMLError, OversizedYaml, ValueError):
        return frozenset()
    if not isinstance(node, yaml.MappingNode):
        return frozenset()
    return frozenset(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))

"""Tests that no module of a service imports both wire types and a storage library, including modules that no contract names."""

from pathlib import Path

import pytest

from tests.unit.architecture.tree import PACKAGES, ROOT, imports_any

pytestmark = pytest.mark.quick

WIRE = ("hopyard.v1", "google.protobuf")
# A module that imports one of these stores state; its types must be those of the domain.
STORAGE = ("sqlalchemy", "alembic", "obstore", "sqlite3")


def services() -> list[Path]:
    folders = [ROOT / path for path in PACKAGES.values() if path.startswith("services/")]
    # A migration converts stored messages, and is never changed afterwards.
    return sorted(path for folder in folders for path in folder.rglob("*.py") if "migrations" not in path.parts)


def mixes(source: str) -> bool:
    """Return whether a source imports both a storage library and wire types."""
    return bool(imports_any(source, STORAGE) and imports_any(source, WIRE))


@pytest.mark.parametrize("path", services(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_both_stores_and_speaks_wire_types(path: Path) -> None:
    assert not mixes(path.read_text())


def test_a_seeded_mixture_is_caught() -> None:
    assert mixes("from sqlalchemy import select\nfrom hopyard.v1 import appstat_pb2")
    assert mixes("import sqlalchemy.orm\n\ndef late():\n    import hopyard.v1.common_pb2 as pb")
    assert not mixes("from sqlalchemy import select\nfrom hopyard.space import Space")
    assert not mixes("from hopyard.v1 import appstat_pb2")

"""Tests of the public names of `hopyard`. A change of these names must change this file too."""

import inspect
from importlib.metadata import entry_points, version

import pytest

import hopyard

pytestmark = pytest.mark.quick

CLASSES = ["AsyncClient", "AsyncStudy", "Client", "Generator", "Policy", "Study", "Trainer", "Trial"]
FUNCTIONS = ["checkpoint", "hyperparameters", "report", "seed"]
PUBLIC = [*CLASSES, "__version__", *FUNCTIONS]


def test_public_names_are_pinned() -> None:
    assert hopyard.__all__ == PUBLIC


@pytest.mark.parametrize("name", [*CLASSES, *FUNCTIONS])
def test_public_names_load_and_are_documented(name: str) -> None:
    value = getattr(hopyard, name)
    assert inspect.isclass(value) == (name in CLASSES)
    assert callable(value)
    assert value.__name__ == name
    assert inspect.getdoc(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hopyard' has no attribute 'Nobody'"):
        _ = hopyard.Nobody  # type: ignore[attr-defined]  # what the test is about


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    assert dir(hopyard) == sorted(PUBLIC)


def test_version_is_the_distribution_version() -> None:
    assert hopyard.__version__ == version("hopyard")


@pytest.mark.parametrize("group", ["hopyard.policies", "hopyard.generators", "hopyard.commands"])
def test_built_in_plugins_load(group: str) -> None:
    points = [point for point in entry_points(group=group) if point.dist and point.dist.name == "hopyard"]
    assert points
    for point in points:
        assert callable(point.load()) or point.load().__doc__

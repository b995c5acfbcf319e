"""Tests of what a refused deletion says."""

import pytest

from hopyard.errors import Conflict
from hopyard.v1 import experiment_pb2
from hopyard_scheduler.experiments.deletion import _need_end

pytestmark = pytest.mark.quick


def test_an_ending_experiment_is_waited_for() -> None:
    ending = experiment_pb2.Experiment(id="e1", state=experiment_pb2.EXPERIMENT_STATE_ENDING)
    with pytest.raises(Conflict, match="experiment e1 is ending; wait until it has ended: hopyard wait e1"):
        _need_end(ending, force=True)

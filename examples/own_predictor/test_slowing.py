import pytest
from slowing import SlowingDown

from hopyard.predictor import Predictor, Question
from hopyard.predictor.conformance import PredictorConformance
from hopyard.predictor.testing import curve


class TestSlowingDown(PredictorConformance):
    """The conformance suite of predictors."""

    time_limit = 0.02

    def make(self) -> Predictor:
        return SlowingDown()


def test_a_gain_fades_with_each_doubling() -> None:
    # The last doubling gained 0.4: 8 reports gain half of that, 16 reports a quarter more.
    asked = Question(curve([0.1, 0.1, 0.5, 0.5]), horizon=16)
    answer = SlowingDown(fade=0.5).predict(asked)
    assert answer.positions == tuple(range(5, 17))
    assert answer.mean[3] == pytest.approx(0.7)
    assert answer.mean[11] == pytest.approx(0.8)

"""Hypothesis strategies for sequences; they use few numbers, so that many sequences have a common prefix."""

from __future__ import annotations

from typing import cast

from hypothesis import strategies as st

from hopyard import sequences as seq

_numbers = st.sampled_from([0.1, 0.2, 0.01, 1, 0.05])
_gammas = st.sampled_from([0.1, 0.5, 1.0, 2.0, 0.9])
_counts = st.sampled_from([1, 2, 5, 10, 20])
_rising = st.lists(_counts, min_size=1, max_size=3, unique=True).map(lambda found: tuple(sorted(found)))


def _one_more(milestones: tuple[int, ...]) -> st.SearchStrategy[seq.Sequence]:
    size = len(milestones) + 1
    values = st.lists(_numbers, min_size=size, max_size=size)
    return values.map(lambda found: seq.MultiStep(milestones=milestones, values=tuple(found)))


_simple: st.SearchStrategy[seq.Sequence] = st.one_of(
    st.builds(seq.ConstantSequence, _numbers),
    st.builds(seq.Linear, _numbers, _numbers, _counts),
    st.builds(seq.Exponential, _numbers, _gammas),
    st.builds(seq.Step, _numbers, _counts, _gammas),
    st.builds(seq.MultiStep, _numbers, _rising, _gammas),
    _rising.flatmap(_one_more),
    st.builds(seq.Cosine, _numbers, _counts, _numbers),
    st.builds(seq.CosineWarmRestarts, _numbers, _counts, st.sampled_from([1, 2])),
    st.builds(seq.Cyclic, _numbers, _numbers, _counts, _counts),
    st.builds(seq.Cyclic, _numbers, _numbers, _counts, mode=st.just("triangular2")),
    st.builds(seq.Cyclic, _numbers, _numbers, _counts, mode=st.just("exp_range"), gamma=_gammas),
    st.builds(seq.Polynomial, _numbers, _counts, st.sampled_from([1, 2, 0.5]), st.sampled_from([0, 0.01])),
    _rising.flatmap(
        lambda places: st.lists(_numbers, min_size=len(places), max_size=len(places)).map(
            lambda values: cast(seq.Sequence, seq.Piecewise(tuple(zip(places, values, strict=True))))
        )
    ),
)


def sequences() -> st.SearchStrategy[seq.Sequence]:
    """Return a strategy for sequences with one value for each unit."""
    warm = st.builds(seq.Warmup, _counts, _numbers, st.none() | _simple)
    chained = st.builds(lambda a, b, at: seq.Chain((a, b), (at,)), _simple, warm | _simple, _counts)
    slow = st.builds(seq.Paced, _simple, st.sampled_from([1, 2, 5]))
    return cast("st.SearchStrategy[seq.Sequence]", st.one_of(_simple, warm, chained, slow))

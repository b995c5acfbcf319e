"""Sequences: hyperparameters whose values change during the training, and the common prefixes of two sequences.

    lr = Warmup(5, 0.1, then=Exponential(gamma=0.95))
    lr.value(0), lr.value(4), lr.value(6)          # 0.02, 0.1, 0.095
    common_prefix(lr, Warmup(5, 0.1), 120)         # 6: both have equal values at 0 to 5

The written form of the same sequence, in an experiment file:

    {sequence: {warmup: {duration: 5, target: 0.1, then: {exponential: {gamma: 0.95}}}}}
"""

from hopyard.sequences.base import Piece, Sequence, common_prefix
from hopyard.sequences.composition import Chain, Paced, Warmup
from hopyard.sequences.configuration import Schedule, sequences_of, values_at
from hopyard.sequences.gridsearch import GridSearchSpace
from hopyard.sequences.kinds import (
    ConstantSequence,
    Cosine,
    CosineWarmRestarts,
    Cyclic,
    Exponential,
    Linear,
    MultiStep,
    Piecewise,
    Polynomial,
    Step,
)
from hopyard.sequences.parse import SEQUENCES, as_sequence, is_written, read, read_kind
from hopyard.sequences.plan_nodes import NodeStretch, plan_path
from hopyard.sequences.prefix_tree import Branch, PrefixTree, Request
from hopyard.sequences.rational import SequenceError

__all__ = [
    "SEQUENCES",
    "Branch",
    "Chain",
    "ConstantSequence",
    "Cosine",
    "CosineWarmRestarts",
    "Cyclic",
    "Exponential",
    "GridSearchSpace",
    "Linear",
    "MultiStep",
    "NodeStretch",
    "Paced",
    "Piece",
    "Piecewise",
    "Polynomial",
    "PrefixTree",
    "Request",
    "Schedule",
    "Sequence",
    "SequenceError",
    "Step",
    "Warmup",
    "as_sequence",
    "common_prefix",
    "is_written",
    "plan_path",
    "read",
    "read_kind",
    "sequences_of",
    "values_at",
]

"""Trainers for model hopping: the data stays in the runners' memory, and models move between runners (Cerebro).

A trainer consists of Cerebro's functions (`input_fn`, `model_fn`, `train_fn`, `evaluate_fn`) and trains in units: one model for one
pass over one partition of the data. Importing this package imports no machine learning library.
"""

from hopyard.model_hopper.batches import batches
from hopyard.model_hopper.frameworks import Handler, SavedByItself, handler_for
from hopyard.model_hopper.trainer import HoppingTrainer, trainer

__all__ = ["Handler", "HoppingTrainer", "SavedByItself", "batches", "handler_for", "trainer"]

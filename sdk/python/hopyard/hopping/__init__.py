"""Training in units over partitions of the data: Cerebro's functions as a trainer.

The data stay in a runner's memory, models hop from runner to runner. Importing this package imports no machine learning library.
"""

from hopyard.hopping.batches import batches
from hopyard.hopping.handlers import Handler, SavedByItself, handler_for
from hopyard.hopping.trainer import HoppingTrainer, trainer

__all__ = ["Handler", "HoppingTrainer", "SavedByItself", "batches", "handler_for", "trainer"]

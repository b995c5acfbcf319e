"""Training in units over partitions of the data: Cerebro's functions as a trainer.

The data stay in a runner's memory, models hop from runner to runner. Importing this package imports no machine learning library.
"""

from hopyard.model_hopper.batches import batches
from hopyard.model_hopper.frameworks import Handler, SavedByItself, handler_for
from hopyard.model_hopper.trainer import HoppingTrainer, trainer

__all__ = ["Handler", "HoppingTrainer", "SavedByItself", "batches", "handler_for", "trainer"]

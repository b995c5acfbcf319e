"""The live view of `hopyard run`: `model` is updated with the changes of an experiment, and `render` draws it."""

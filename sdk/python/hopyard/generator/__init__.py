"""Generators of configurations: the base class of generator plugins, and the types of results."""

from hopyard.generator.base import Generator, GeneratorParameterError, ObjectiveMetric, Reads, Result, parameter_names

__all__ = ["Generator", "GeneratorParameterError", "ObjectiveMetric", "Reads", "Result", "parameter_names"]

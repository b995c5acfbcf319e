"""Generators of configurations: the base class that plugins derive from."""

from hopyard.generator.base import Generator, GeneratorParameterError, Metric, Reads, Result, parameter_names

__all__ = ["Generator", "GeneratorParameterError", "Metric", "Reads", "Result", "parameter_names"]

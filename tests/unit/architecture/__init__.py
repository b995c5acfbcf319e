"""Tests of the architecture: imports, public names, generated code, docstrings and figures of structure."""

"""Scores predictors on real learning curves: data, baselines and proper scoring rules (see `benchmarks/curves.py`)."""

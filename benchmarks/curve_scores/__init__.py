"""How well predictors extrapolate real learning curves: data, baselines, proper scores (`benchmarks/curves.py`)."""

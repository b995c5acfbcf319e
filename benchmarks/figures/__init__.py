"""The figures of `benchmarks/overhead.py`: one module a figure, each measured on real clusters beside its baseline."""

"""The figures of `benchmarks/overhead.py`. Each is a module that measures real clusters and a baseline in the same run."""

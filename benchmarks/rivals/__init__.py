"""The programs that the contenders of benchmarks/asha_rivals.py run."""

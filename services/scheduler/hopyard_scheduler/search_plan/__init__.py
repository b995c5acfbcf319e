"""The search plan: what earlier experiments trained that a new one can reuse."""

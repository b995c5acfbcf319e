"""Disturbs live clusters for `benchmarks/chaos.py`: proxies, kills and stops, and the checks of what was trained meanwhile.

`schedule` draws the disturbances, `services` runs a cluster behind proxies (`proxy`) and carries them out. `searches` has one small
search for each policy, `program` what it trains, and `verdict` compares what a cluster recorded with what the program computes alone.
"""

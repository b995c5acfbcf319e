"""Re-executes the training of an experiment from its journal and compares the results bit for bit.

`extract` reads from the journal which run trained what, and `chains` selects what counts. `recorded_policy` makes a `scratch_cluster`
repeat it. `diff` compares the results.
"""

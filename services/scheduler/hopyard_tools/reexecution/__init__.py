"""Re-executes the training of an experiment from its journal and compares the results bit for bit.

`extract` reads the runs and their results from the journal. `chains` selects the runs whose results are part of a final
model or evaluation. `scratch_cluster` repeats them in a temporary cluster with the policy `recorded_policy`. `diff`
compares the results.
"""

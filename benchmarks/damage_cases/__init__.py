"""The cases of `benchmarks/damage.py`: what is damaged in the data of a cluster, how the cluster is started again, and the verdict.

* `plan` draws the cases from a seed, and `case` runs one.
* `bases` prepares data directories of clusters that ended in the middle of their searches.
* `files` damages files, `rows` damages rows of the database.
* `cluster` starts a cluster again in one of four ways, and ends its processes. `session` is the program that uses its clients.
* `specs` are the experiments, `chain` is their training code: each result depends on every byte of the code and the snapshots before.
* `verdict` judges what happened.
"""

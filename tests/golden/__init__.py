"""The golden record: the recorded behaviour of the code, which shows that a change of structure changes no behaviour.

`python -m tests.golden` runs the code and compares its behaviour with the record in `record/`. docs/golden.md explains its use.
"""

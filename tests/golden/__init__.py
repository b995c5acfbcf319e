"""The golden record: what the code does today, kept so that a change of structure can be shown to change no behaviour.

`python -m tests.golden` runs the code and compares what it does with the record in `record/`. docs/golden.md explains its use.
"""

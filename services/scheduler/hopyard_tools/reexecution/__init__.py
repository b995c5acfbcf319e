"""Training an experiment again, as its journal has it, and comparing what comes out bit for bit.

`recorded` reads from a journal which run trained what from where, `chains` what of it counts, `again` is the policy that has a cluster
do the same once more, `scratch` that cluster, and `compared` lays both side by side.
"""

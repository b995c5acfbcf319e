"""Fault simulation: the real core and real policies with simulated agents, in virtual time, reproducible from a seed."""

"""Fault simulation: the real core and real policies among simulated agents, in virtual time and from one seed."""

"""The tables of permitted state changes, and the functions that apply them. `docs/state-machines.md` is generated from the tables."""

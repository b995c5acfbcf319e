"""Random simulated searches: how they are drawn, and the invariants that are checked in each."""

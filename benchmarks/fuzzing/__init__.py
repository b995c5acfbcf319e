"""Random simulated searches: what they are made of, and what must be true of each."""

"""The Hopyard scheduler: manages nodes, slots, experiments and jobs, and calls the policies."""

"""The scheduler service of Hopyard: manages nodes, slots, experiments and jobs, and calls the policies."""

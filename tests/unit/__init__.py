"""Unit tests: each tests one part of Hopyard, without a cluster."""

"""Runs on several slots: connections between the ranks, the leader (rank 0) and its followers."""

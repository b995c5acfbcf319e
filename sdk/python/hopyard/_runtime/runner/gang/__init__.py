"""Runs on several slots (gangs): connections between the ranks, the leader (rank 0) and the followers (other ranks)."""

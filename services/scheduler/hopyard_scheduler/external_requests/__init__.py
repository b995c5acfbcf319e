"""Requests to others: configurations from hpgen, predictions from nodes, solutions from worker processes."""

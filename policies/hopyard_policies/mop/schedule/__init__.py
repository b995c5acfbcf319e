"""Schedules training units without the policy API: the problem, rules and planners for it, bounds, and the exact solver."""

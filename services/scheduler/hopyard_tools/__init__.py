"""Commands that need the engine but no live scheduler: events, replay, rungs, simulate, tree, and re-execution."""

"""Commands that use the engine without a live scheduler: events, replay, rungs, simulate, tree, and re-execution of training."""

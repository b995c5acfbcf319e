"""External requests of the core: configurations from hpgen, predictions from nodes, solutions from worker processes."""

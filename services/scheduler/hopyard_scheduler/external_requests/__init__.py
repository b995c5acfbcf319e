"""External requests of the core: configurations from hpgen (the generator service), predictions from nodes, and solver answers."""

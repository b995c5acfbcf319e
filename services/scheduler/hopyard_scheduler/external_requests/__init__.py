"""External requests of the core, the state machine of the engine.

They are requests for configurations from hpgen (the generator service), predictions from nodes, and solver answers.
"""

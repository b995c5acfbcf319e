"""The engine: decides what a cluster does. Pure and deterministic; it never does I/O and never reads a clock.

Events enter as values and effects leave as values. The live service (`hopyard_scheduler`), the simulator (`hopyard_simulator`) and the
offline commands (`hopyard_tools`) feed it and carry its effects out.

* `core`: the state machine, `Core.handle(event) -> effects`.
* `journal`: the records of events.
* `policy_host`: makes policies, shows them the state and turns their answers into events.
* `replay`: rebuilds an experiment from its journal and compares the decisions of its policy with the recorded ones.
* `explain`: text about events and states for people.
"""

"""The scheduling engine: a pure, deterministic state machine without I/O or a clock.

Events enter as values and effects leave as values. The live service (`hopyard_scheduler`), the simulator (`hopyard_simulator`) and
the offline commands (`hopyard_tools`) pass events to it and carry out its effects.

* `core`: the state machine, `Core.handle(event) -> effects`.
* `settings`: converts the specification of an experiment, with its defaults, to the settings of the core.
* `journal`: converts events to journal records and back.
* `policy_host`: loads policies, makes up-calls on them and turns their answers into events.
* `replay`: rebuilds an experiment from its journal and compares its policy's decisions with the recorded ones.
* `explain`: describes events and states in text.
"""

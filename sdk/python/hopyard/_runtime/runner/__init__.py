"""The runner: a process that makes the runs of trainers and programs for a node agent (`python -m hopyard._runtime.runner`).

A node agent starts it with HOPYARD_AGENT (its address), HOPYARD_TOKEN and HOPYARD_AGENT_PID in its environment. It
attaches to the agent (opens a stream of messages) and makes one run after another: it trains with the experiment's trainer
class, which stays imported between runs, or starts a program as a child process (`command`). `gang` supports runs on several
slots.

A script attaches in the same way, once for each run (`hopyard.script`), and also uses `boundary` and
`agent_connection`.
"""

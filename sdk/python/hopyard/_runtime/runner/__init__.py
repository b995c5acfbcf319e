"""The warm process of trainer mode and log mode: `python -m hopyard._runtime.runner`.

A node agent starts it with HOPYARD_AGENT (host:port), HOPYARD_TOKEN and HOPYARD_AGENT_PID in its environment. It
attaches to the agent, takes one run after the other, and trains each with the experiment's trainer, which stays
imported between runs; or it starts a log program as a child, and reads its output (`command`). `gang` has what runs on several
slots need.

A script attaches in the same way, once for each run (`hopyard.script`), and uses `boundary` and `agent_connection` too.
"""

"""The hardware of the node: its description as text, and the use of its GPUs."""

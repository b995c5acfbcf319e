"""Policies in separate processes: message conversion, the policy's view of the experiment, and the process that runs the policy."""

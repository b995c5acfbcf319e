"""Tests of the whole cluster: real processes, real training, real SIGKILL."""

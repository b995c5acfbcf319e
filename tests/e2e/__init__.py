"""The whole cluster: real processes, real training, real kill -9."""

"""Commands for a cluster and its data: up, doctor, data, gc."""

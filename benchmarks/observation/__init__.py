"""What benchmarks observe of a cluster from outside: the processes that are left, and the tracebacks in the logs of services."""

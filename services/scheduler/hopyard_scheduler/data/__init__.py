"""The catalog of partitioned data sets."""

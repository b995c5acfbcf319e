"""The catalog of data sets that consist of partitions on nodes."""

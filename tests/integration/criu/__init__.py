"""Tests of dump and restore of processes without a cluster."""

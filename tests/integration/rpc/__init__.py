"""Tests of RPC servers in other processes."""

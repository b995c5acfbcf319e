"""Runs of a program that the runner starts as a child process.

The program is a log program, whose metrics are read from its output, or a script whose processes are dumped and restored.
"""

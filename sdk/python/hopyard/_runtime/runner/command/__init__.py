"""Runs of a program that the runner starts as a child: log mode, and scripts whose processes are dumped and restored."""

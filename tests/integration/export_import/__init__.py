"""Tests of the export of experiments to a file and of the import into another cluster."""

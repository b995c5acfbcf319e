"""Tests of training again what a journal has."""

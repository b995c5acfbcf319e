"""Tests of `hopyard retrain`: training again what a journal records."""

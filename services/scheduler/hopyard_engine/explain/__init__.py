"""Texts for people: descriptions of events, and the reasons why jobs and experiments wait."""

"""The schema revisions, ordered by number."""

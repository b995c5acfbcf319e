"""The scheduling policies that come with Hopyard."""

"""The built-in generators. Like external ones, they are found by their entry points in the group `hopyard.generators`."""

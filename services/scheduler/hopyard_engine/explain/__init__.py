"""Text for people: why something waits, what an event says, the story of a job."""

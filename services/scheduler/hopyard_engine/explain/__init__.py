"""Text for people: why something waits, what an event says, the history of a job."""

"""How terminals and notebooks show what the client returns, and the progress of a wait."""

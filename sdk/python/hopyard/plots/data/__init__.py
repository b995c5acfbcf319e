"""What each kind of plot shows, as plain values, and how it is gathered from searches."""

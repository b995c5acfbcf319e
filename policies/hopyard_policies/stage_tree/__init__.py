"""Stage trees (Hippo): the common prefix of several trials is trained once."""

"""Stage trees (Hippo): the training that several trials have in common at their beginning is done once."""

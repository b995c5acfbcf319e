"""What policies share: job creation, amendments, parameter checks, a cluster proxy."""

"""The Hopyard scheduler: resource manager, job manager, experiment front door and policy host."""

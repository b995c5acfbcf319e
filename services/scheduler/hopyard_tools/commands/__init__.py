"""The commands of the package hopyard_tools. The command line finds them by their entry points."""

"""The commands of this package. The CLI finds them by entry point."""

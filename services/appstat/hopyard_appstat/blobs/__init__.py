"""The blob store: bytes under their SHA-256, in a folder or an object store."""

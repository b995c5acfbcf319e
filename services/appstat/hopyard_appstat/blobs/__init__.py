"""The blob store: blobs are bytes stored under their SHA-256, in a folder or an object store."""

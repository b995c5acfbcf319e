"""What people do with experiments: create, change, query, watch, import."""

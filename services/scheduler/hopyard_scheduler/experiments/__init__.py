"""Operations of people on experiments: create, change, query, watch, import."""

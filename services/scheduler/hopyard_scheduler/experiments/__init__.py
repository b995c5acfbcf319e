"""Operations of clients on experiments: create, change, query, watch and import."""

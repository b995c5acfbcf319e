"""Operations on the state that several handlers use."""

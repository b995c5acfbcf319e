"""Operations on a stream's state that several handlers use."""

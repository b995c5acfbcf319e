"""Operations on a stream's state that several event handlers use."""

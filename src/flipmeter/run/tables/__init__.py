"""Tables of answers that somebody already has -> Run."""

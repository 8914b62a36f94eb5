"""Tables of existing answers -> Run."""

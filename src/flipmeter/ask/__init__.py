"""Request -> Reply: serve what is stored, ask for the rest, lose nothing."""

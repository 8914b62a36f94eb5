"""One aspect of the flips in detail, each a table by a registered name."""

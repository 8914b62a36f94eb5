"""Arrays -> numbers: flips, scores, tokens, as one long table."""

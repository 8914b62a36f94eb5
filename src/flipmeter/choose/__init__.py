"""Run -> a rater in use: select it, write its card, classify with it, gate it."""

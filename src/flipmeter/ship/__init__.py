"""Run -> a rater in use: select one, card it, classify with it, guard it."""

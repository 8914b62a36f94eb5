"""Inspect and back: our views as its tasks, its logs as our runs."""

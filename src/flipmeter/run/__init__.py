"""Condition -> Run: ask, decide, and keep it all in one folder; read such folders again."""

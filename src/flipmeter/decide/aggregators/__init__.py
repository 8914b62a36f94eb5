"""Outcomes of comparisons -> one class."""

"""Levels held against each other: residuals, interactions, choices."""

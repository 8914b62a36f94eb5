"""Levels compared with each other: residuals, interactions, choices."""

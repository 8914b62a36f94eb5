"""Decisions -> arrays: items under views, in groups."""

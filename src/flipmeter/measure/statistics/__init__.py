"""Counts and samples -> intervals and p-values, each by one named method."""

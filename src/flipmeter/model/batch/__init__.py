"""Requests -> batches of a vendor: files to hand in, jobs at the vendor, results -> replies."""

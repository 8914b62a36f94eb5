"""Requests -> batches of a vendor: files to upload, jobs at the vendor, results -> replies."""

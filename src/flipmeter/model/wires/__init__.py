"""Request -> body of a vendor's API, and its answer -> Reply."""

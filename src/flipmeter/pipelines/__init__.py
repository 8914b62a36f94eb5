"""Answer -> Decision: what must be asked about an item, and the class that settles it."""

"""The questions about an item, and the decision from its answers."""

"""What to ask about an item, and how its answers settle it."""

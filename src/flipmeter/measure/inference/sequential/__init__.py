"""Claims that are looked at while items are asked: boundaries, bets and what they cost."""

"""Answers under several views -> one without what a slot adds."""

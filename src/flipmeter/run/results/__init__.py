"""Run -> what people are shown of it: findings, flipped items, summaries."""

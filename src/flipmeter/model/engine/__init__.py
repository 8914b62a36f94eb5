"""Request -> Reply, many at once: workers, pace, budgets, replicas."""

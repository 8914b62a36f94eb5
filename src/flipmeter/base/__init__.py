"""General code that belongs to no stage: seeded chance, atomic files, fetching, waiting."""

"""What any program needs and no stage owns: seeded chance, atomic files, fetching, waiting."""

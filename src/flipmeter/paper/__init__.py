"""The paper, answered: its tables and claims beside what is measured here, and its errata."""

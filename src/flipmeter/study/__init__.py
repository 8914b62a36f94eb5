"""Study file -> Condition: the grammar of an experiment, and its grid."""

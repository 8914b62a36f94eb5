"""Reply -> disk and back: the store, and what can be done with one."""

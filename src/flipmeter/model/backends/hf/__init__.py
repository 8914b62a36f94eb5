"""Models of transformers: loaded, prompted and sampled in this process."""

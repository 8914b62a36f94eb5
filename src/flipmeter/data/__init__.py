"""Files -> Item: read, check and sample labelled texts."""

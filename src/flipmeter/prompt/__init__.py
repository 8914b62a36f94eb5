"""Item, View -> Prompt, and Reply -> Answer: probes, words, and what is read."""

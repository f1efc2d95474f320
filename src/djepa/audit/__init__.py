"""Where a model's order of candidates contradicts what execution showed."""

"""Studies: what is run to answer the questions the paper asks, and what the paper answers."""

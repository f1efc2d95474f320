"""Label-free evidence: predictions for the candidates of a pool, before any is executed."""

"""Predictive geometries: encode, roll out, native cost; their training."""

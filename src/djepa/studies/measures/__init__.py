"""Measures that any design can name: each is run for a case, stored, and shown on the page."""

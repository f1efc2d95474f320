"""Paired success, intervals, quality of choices."""

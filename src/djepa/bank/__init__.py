"""Recorded starts and executions on disk, with outcomes apart from what a decision may see."""

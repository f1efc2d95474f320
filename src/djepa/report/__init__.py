"""Pictures and tables made from what is on disk."""

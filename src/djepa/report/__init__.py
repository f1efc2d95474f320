"""Pictures and tables made from stored results."""

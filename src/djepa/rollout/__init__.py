"""Executes every candidate of every start; engines: local processes, Ray."""

"""The tasks there are: a world, its starts, its pools, and what a geometry sees of it."""

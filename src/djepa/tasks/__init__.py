"""The built-in tasks: each is a world, its starts, its pools, and what a geometry sees."""

"""At home in other software: records, a server, exported graphs, adapters. See docs/interop.md.

Every adapter is one short module, and its package an extra of its own.
"""

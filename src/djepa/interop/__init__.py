"""Use with other software: records, a server, exported graphs, adapters. See docs/interop.md.

Every adapter is one short module; its package is a separate extra.
"""

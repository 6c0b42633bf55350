"""Serving parts, each of them a client of the arena and its ledger."""

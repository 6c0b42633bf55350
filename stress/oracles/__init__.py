"""Oracles, one file each: they read device trace, calls and snapshots, never the ledger."""

"""Oracles, one file each; they read the device trace, the calls and the snapshots, never the ledger."""

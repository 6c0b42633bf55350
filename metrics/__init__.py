"""Prometheus metrics, read from immutable snapshots of an arena."""

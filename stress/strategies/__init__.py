"""Strategies: who chooses the next step of a schedule."""

"""The stress harness and the `onearena` command: everything that tries to break the arena."""

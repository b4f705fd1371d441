"""A pytest plugin: tests that may not look around, and the checks of the determinism contracts."""

"""The process that records model calls, answers replays from recordings and dials live models."""

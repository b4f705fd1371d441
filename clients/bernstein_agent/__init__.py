"""Agents at work: what they see around them, and where a replay locks them in."""

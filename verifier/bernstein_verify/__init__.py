"""Verifies evidence offline, from files alone: what an auditor installs, and nothing more."""

PROGRAM = "bernstein-verify"

"""Bytes in, values out and back: the peer's file formats, pure, installable alone by an auditor."""

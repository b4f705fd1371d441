"""What agents take for their model provider: it records, or it answers from a recording."""

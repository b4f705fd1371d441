"""What the journal and the recorder keep evidence in: one narrow interface, drivers behind it."""

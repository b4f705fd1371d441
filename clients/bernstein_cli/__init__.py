"""The command `bernstein`: a thin client of the services, and a reader of files on its own."""

"""The process that shows runs to browsers: a client of the journal, with nothing of its own."""

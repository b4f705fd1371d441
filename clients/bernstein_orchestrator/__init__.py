"""`bernstein run` as a library: a plan becomes tasks, agents, and rows that can be re-derived."""

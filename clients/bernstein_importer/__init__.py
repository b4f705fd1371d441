"""Takes a peer's runs in, row by row and verbatim, to be verified and signed for here."""

"""The only process that holds private keys: it seals runs and signs receipts, and calls nobody."""

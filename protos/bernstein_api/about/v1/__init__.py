"""Generated from the .proto files beside it."""

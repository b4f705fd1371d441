"""The client library: what commands, orchestrators and other programs call the services with."""

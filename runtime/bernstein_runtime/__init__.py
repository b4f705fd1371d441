"""What every process shares: configuration, logs, the boundary of a call, the way to a service."""

__version__ = "0.1.0"
VERSION = __version__

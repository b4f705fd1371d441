"""The process that starts a project's services, restarts what dies and ends when idle."""

"""The rederiver process: checks recorded schedules against the scheduler's rules; keeps nothing."""

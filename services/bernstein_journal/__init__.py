"""The journal process: owns every append-only store of a run except the recorded model calls."""

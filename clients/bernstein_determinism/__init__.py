"""The determinism contracts for agents: same input, same prompt, same answer, same verdicts, same state."""

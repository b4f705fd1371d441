"""The determinism contracts: same input, same prompt, same answer, same verdicts, same state."""

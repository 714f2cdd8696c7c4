"""Builders: from a robot to a Task that trains. What they are not given they read from the model (sim/anatomy)."""

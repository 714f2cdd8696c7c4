"""Learners that learn from each batch while it is new: what they share, and one algorithm a file on it."""

"""Learners that learn again and again from what was done before: a replay, and one algorithm a file on it."""

"""Learners that learn again and again from what was done before: one algorithm a file, on a replay; reach_avoid.py on rollouts of a frozen policy."""

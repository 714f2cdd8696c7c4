"""Motions for robots to follow."""

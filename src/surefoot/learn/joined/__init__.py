"""Envs of several kinds as one batch: simulations beside a robot, or simulations in several engines."""

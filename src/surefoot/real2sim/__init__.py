"""Worlds and Beliefs from Logs: a robot's motion compared with its model's."""

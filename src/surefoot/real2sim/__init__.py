"""Worlds and Beliefs from Logs: what a real machine did, held against what its model would have done."""

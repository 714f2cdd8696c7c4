"""Ways of training that have flags, checks and runs of their own."""

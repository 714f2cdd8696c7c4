"""Runs as records: read, compared, ranked and cleaned (runs.py), and shared by content (store.py). Nothing here needs torch."""

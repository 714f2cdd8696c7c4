"""What surefoot costs and what it gains, measured: `python -m benchmarks.throughput`, `python -m benchmarks.learn`."""

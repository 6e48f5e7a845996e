"""Predicted against published times: `python -m benchmarks.accuracy` prints the table that docs/accuracy.md holds."""

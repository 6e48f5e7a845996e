"""Speed of the interpreter, as ratios against plain NumPy in the same process. `python -m benchmarks`."""

"""The tests, one folder a room; `conftest.py` holds what they share, `golden/` the expected texts."""

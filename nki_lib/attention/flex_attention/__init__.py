"""Attention with score and mask recipes, and blocks that are skipped. Start at `recipes.py`, then `api.py`."""

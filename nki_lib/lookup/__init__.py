"""Operators that read tables at places which are data."""

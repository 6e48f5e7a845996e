"""Tests of `nki.language`, one module per idea."""

"""Tests of `nki.collectives`, one module a collective."""

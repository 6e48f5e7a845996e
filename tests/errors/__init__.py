"""Tests of what users are told: which class, at which line, in which words."""

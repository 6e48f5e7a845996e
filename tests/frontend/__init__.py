"""Tests of the front end: source, subset, rewriting and the record of dependencies."""

"""Tests of the tools that keep pages and notebooks true."""

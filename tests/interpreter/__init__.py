"""Tests of the machine: memory, binding, planning, running."""

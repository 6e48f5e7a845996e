"""Experts for many tokens: dropless, sorted by expert on the device."""

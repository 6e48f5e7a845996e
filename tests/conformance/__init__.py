"""Conformance: the rules of the language by number, each with its basis and its tests; sweeps over the registry."""

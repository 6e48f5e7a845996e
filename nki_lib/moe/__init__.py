"""Mixture of experts: choosing experts for tokens, and computing what the chosen ones return."""

"""Probes run over a plan: each experiment returns one record of records."""

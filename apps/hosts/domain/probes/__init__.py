"""Probes: short checks that run on hosts as jobs, and the states that they measure."""

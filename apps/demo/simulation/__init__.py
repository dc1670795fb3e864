"""The simulated cluster of the demo: jobs, outages and failing hosts from a seed.

Knows nothing of Django.
"""

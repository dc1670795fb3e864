"""The simulated cluster of the demo: jobs, outages and failing hosts, generated from a seed.

It does not depend on Django.
"""

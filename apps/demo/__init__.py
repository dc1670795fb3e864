"""The simulated cluster, and the people, requests and services of the demo.

It is installed only with `DEMO=true`.
"""

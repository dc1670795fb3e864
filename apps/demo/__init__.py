"""The simulated cluster, and the people, requests and services of the demo;
installed only with `DEMO=true`.
"""

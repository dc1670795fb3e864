"""The commands of the Makefile: `make run`, `make test`, … Standard library only:
they also create the environment.
"""

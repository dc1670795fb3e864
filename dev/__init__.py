"""The project's own commands, `make run` and `make test`. Standard library only: they also make the environment."""

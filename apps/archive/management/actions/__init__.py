"""What `manage.py archive` can do: modules with `HELP`, `add_arguments(parser)`, `run(command, **options)`."""

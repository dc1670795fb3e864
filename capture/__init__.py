"""Copies jobs from a scheduler's spool to the portal; a program of its own, without Django.

In the order of a job's way: `main` starts the program from a `plan`; `capture` scans the spool and
runs the threads; `watch/` follows file events; `queues` hold what waits to be read; `spool_reader`
reads and masks; `journal/` keeps it durably; `handover`, in a `process` of its own with the
journal, carries it to one of the `portals/`, reports there and brings the `masking_rules`.
"""

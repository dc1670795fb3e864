"""Copies jobs from a scheduler's spool to every sink; a program of its own, without Django.

In the order of a job's way: `main` starts the program from a `plan`; `capture` scans the spool and runs the threads;
`watch/` follows file events; `queues` hold what waits to be read; `spool_reader` reads and masks; `journal/` keeps it
durably; `delivery/` carries it to the sinks. `heartbeat` reports to the portal and brings the `masking_rules`.
"""

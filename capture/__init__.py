"""Copies jobs from a scheduler's spool to the portal: a program of its own,
for the scheduler's host.

It knows neither Django nor the portal's servers, and hands over by HTTPS with a token. In the order
of a job's way: `main` starts the program from its `configuration`; `capture` scans the spool and
runs the threads; `watch/` follows file events; `queues` hold what waits to be read; `spool_reader`
reads and masks; `journal/` keeps it durably; `handover`, in a `process` of its own with the
journal, carries it to the `portal`, reports there and brings the `masking_rules`. `wire/` holds the
formats that the portal shares.
"""

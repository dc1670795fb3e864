"""Copies jobs from a scheduler's spool to the portal.

A program for the scheduler's host that knows neither Django nor the portal's servers, and hands
over by HTTPS with a token. In the order in which a job passes them: `main` starts the program from
its `configuration`; `capture` scans the spool and runs the threads; `watch/` follows file events;
`queues` hold entries until they are read; `spool_reader` reads and masks them; `journal/` stores
them durably; `handover`, in a separate `process` with the journal, sends them to the `portal`,
reports there and fetches the `masking_rules`. `wire/` holds the formats that the portal shares.
"""

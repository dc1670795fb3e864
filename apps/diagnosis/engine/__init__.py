"""The engine behind verdicts, without Django: read logs, match known errors, weigh the evidence."""

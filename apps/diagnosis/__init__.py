"""Diagnosis of failed jobs: log harvest, known errors, verdicts, failures by cause."""

"""Why a job failed: log harvest, known errors, verdicts and failures by cause."""

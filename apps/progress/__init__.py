"""Progress of requests: counts by stage, expected end, moves that follow from jobs, reports."""

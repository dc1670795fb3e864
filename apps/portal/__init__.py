"""Pages that draw on several apps: home, job, search. Owns no models."""

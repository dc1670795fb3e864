"""The search in logs and scripts in the API."""

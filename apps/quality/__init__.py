"""Data quality of requests: checks, results by stage, waivers, and closing."""

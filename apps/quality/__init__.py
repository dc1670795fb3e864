"""Whether what a request has produced is good: checks, results by stage, waivers, and closing the request."""

"""The demo's data besides the simulated cluster, created only through domain functions."""

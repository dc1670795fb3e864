"""What the demo's portal holds beside the simulated cluster,
made by the services of the apps alone.
"""

"""What an incident of a service did to jobs: counted when either side changes,
and read for pages.
"""

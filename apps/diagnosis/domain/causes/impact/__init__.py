"""The impact of service incidents on jobs: counted on changes of either, and read for pages."""

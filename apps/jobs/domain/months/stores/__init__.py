"""Where archived months are: in a directory, or in an S3-compatible object store."""

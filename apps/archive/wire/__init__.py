"""What passes between capture and the portal: captured jobs in batches, and capture's report."""

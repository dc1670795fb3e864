"""Ways to hand batches over to the portal: directly into its database, or over HTTP."""

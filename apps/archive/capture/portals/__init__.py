"""Where capture hands its batches over: straight into the portal's database, or over HTTP."""

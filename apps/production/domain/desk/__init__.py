"""The approver's desk: requests to sign, bulk approval, and the sheet of one request."""

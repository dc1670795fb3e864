"""The checks of `opsportal doctor`, which looks at a running site."""

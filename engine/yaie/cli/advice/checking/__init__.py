"""What `yaie doctor` checks."""

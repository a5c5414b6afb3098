"""What form an output must have: from what requests say to one grammar."""

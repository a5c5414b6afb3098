"""What the next step holds, and what its results mean for each request."""

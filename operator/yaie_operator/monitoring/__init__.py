"""What the operator tells about itself: metrics, and the answers to probes."""

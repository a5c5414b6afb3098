"""From what is observed to what is wanted: a plan, its conditions, its status."""

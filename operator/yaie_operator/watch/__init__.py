"""The cluster as events and calls: watches, the work queue, leader election."""

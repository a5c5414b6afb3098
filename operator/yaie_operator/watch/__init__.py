"""Connection to the cluster: watches, API calls, the work queue, leader election."""

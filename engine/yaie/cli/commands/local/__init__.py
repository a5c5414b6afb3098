"""Commands that start `yaie up` or speak to a running one."""

"""A cluster on this machine: an object store, controllers, and a kubelet that runs processes.

`yaie up` runs the operator's own reconcile code on it. In call order: `apiserver.api` (REST on a
unix socket) and `cluster` (the operator's port) call `apiserver.api_verbs`, which calls `admission`
and writes to the `store`. `machine` watches the store and runs `gc`, `deployments`, `endpoints` and
the `kubelet` until they change nothing more.
"""

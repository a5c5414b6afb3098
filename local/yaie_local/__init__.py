"""A cluster on this machine: an object store, the controllers and a kubelet on processes.

`yaie up` runs the operator's own reconcile code on it. The story in call order: `api` (REST on a
unix socket) and `cluster` (the operator's port) call `verbs`, which asks `admission` and writes to
the `store`; `machine` watches the store and runs `gc`, `deployments`, `endpoints` and the `kubelet`
until nothing is left to change.
"""

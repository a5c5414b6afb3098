"""Names that several parts of yaie must agree on: API group, labels, ports, headers, object names.

A string that is used both in a manifest and in code is defined only here.
"""

from typing import Final

# The custom resource.
GROUP: Final = "yaie.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "InferenceModel"
PLURAL: Final = "inferencemodels"
SINGULAR: Final = "inferencemodel"
SHORT_NAME: Final = "ym"
CATEGORY: Final = "yaie"
MAX_NAME_LENGTH: Final = 40

# Labels on everything the operator creates.
LABEL_MODEL: Final = f"{GROUP}/model"
LABEL_COMPONENT: Final = f"{GROUP}/component"
LABEL_TEMPLATE_HASH: Final = f"{GROUP}/template-hash"
LABEL_WEIGHTS: Final = f"{GROUP}/weights"
"""On the pod of a download: the key of what it stores."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "yaie-operator"
COMPONENT_ENGINE: Final = "engine"
COMPONENT_ROUTER: Final = "router"
COMPONENT_WEIGHTS: Final = "weights"
CONDITION_ROUTED: Final = f"{GROUP}/routed"
"""Readiness gate of engine pods: the routers reach the pod, or nobody waits for them."""
LABEL_SERVICE_NAME: Final = "kubernetes.io/service-name"
"""Set by Kubernetes (and by the local adapter) on every EndpointSlice of a Service."""

# Identities of the operator.
FIELD_MANAGER: Final = "yaie-operator"
FIELD_MANAGER_AUTOSCALER: Final = "yaie-autoscaler"
OPERATOR_LEASE: Final = "yaie-operator"

# Objects that a namespace shares.
ROUTER: Final = "yaie-router"
"""Name of what belongs to the router in each namespace: Deployment, Service, ServiceAccount,
RoleBinding, NetworkPolicy, PodDisruptionBudget."""
ENGINES: Final = "yaie-engines"
"""Name of the NetworkPolicy of a namespace's engines."""
WEIGHTS: Final = "yaie-weights"
"""Name of the NetworkPolicy of a namespace's downloads."""
ROUTER_SECRET: Final = "yaie-router-keys"  # noqa: S105 - the name of a Secret, not a secret
ROUTER_CLUSTER_ROLE: Final = "yaie-router"
RESERVED_NAME_PREFIX: Final = "yaie-router"

# Ports inside pods. A Service publishes the router and each engine on HTTP_PORT too.
HTTP_PORT: Final = 8000
HTTP_PORT_NAME: Final = "http"
OPERATOR_METRICS_PORT: Final = 8080
ROUTER_METRICS_PORT: Final = 9464
"""The default of OpenTelemetry's exporter, so that `yaie up` meets no Prometheus server on it."""
METRICS_PORT_NAME: Final = "metrics"

# Engine and router endpoints that probes and scrapers use.
PATH_LIVE: Final = "/livez"
PATH_READY: Final = "/readyz"
PATH_METRICS: Final = "/metrics"
PATH_PREFIXES: Final = "/prefixes"
"""On an engine: the stream of its cached prefix keys and its load (`yaie_api.prefix.updates`)."""
PATH_PROGRESS: Final = "/progress"
"""On the pod of a download: how far it is (`yaie_api.download`)."""

# Headers.
HEADER_REQUEST_ID: Final = "x-request-id"
HEADER_PREFIX: Final = "x-yaie-"
"""Prefix of internal headers between yaie's parts; the router removes them from client requests."""
HEADER_ENDPOINT: Final = "x-yaie-endpoint"
"""On a router's response: the engine (pod name) that answered."""

HEADER_TIMEOUT: Final = "x-yaie-timeout-seconds"
"""On a request: the number of seconds after which an engine ends it with 504."""

HEADER_ROUTE: Final = "x-yaie-route"
"""On a request, with any value: the router's answer says in it why it chose its engine."""

HEADER_TENANT: Final = "x-yaie-tenant"
"""On a request to an engine: the tenant whose API key the router has checked. Whoever reaches an
engine past its router may set it; without it, all share one cache and one store of responses."""

HEADER_USAGE: Final = "x-yaie-usage"
"""On a request, "1": the router asks for the answer's tokens (`yaie_api.http.usage_note`)."""

HEADER_REPLAY: Final = "x-yaie-replay"
"""On a request: the router can have another engine continue the answer. On a response: so can this
engine (`yaie_api.http.replay`). Whoever reaches an engine past its router may set it, and have an
answer go on from tokens of their own."""

# Environment variables that the operator sets on pods.
ENV_POD_NAME: Final = "YAIE_POD_NAME"
ENV_NAMESPACE: Final = "YAIE_NAMESPACE"
ENV_MODEL_FOLDER: Final = "YAIE_MODEL_FOLDER"
"""Where the volume with the weights is mounted; unset for an engine that has none."""
ENV_TERMINATION_LOG: Final = "YAIE_TERMINATION_LOG"
"""The file whose text the kubelet reports as the container's termination message."""
ENV_API_SOCKET: Final = "YAIE_API_SOCKET"
"""Path of the local adapter's Kubernetes-style API (unix socket). Unset inside a real cluster."""
ENV_PREFIX_KEY: Final = "YAIE_PREFIX_KEY"
"""Hex key of the keyed prefix hash, from the namespace's Secret."""
ENV_LISTEN_FD: Final = "YAIE_LISTEN_FD"
"""Number of an inherited listening socket on which a router accepts connections, in addition to its
own address; set by `yaie up`, which publishes the router on 127.0.0.1."""

# Environment variables that users set, and that `yaie up` sets on its router.
ENV_API_KEY: Final = "YAIE_API_KEY"
"""Keys that a server accepts, one a line; for clients, the key that they show."""
ENV_ALLOWED_ORIGINS: Final = "YAIE_ALLOWED_ORIGINS"
ENV_ALLOWED_METHODS: Final = "YAIE_ALLOWED_METHODS"
ENV_ALLOWED_HEADERS: Final = "YAIE_ALLOWED_HEADERS"
ENV_ALLOW_CREDENTIALS: Final = "YAIE_ALLOW_CREDENTIALS"
"""Which pages of other origins may use a router, and how; lists as JSON or with commas."""

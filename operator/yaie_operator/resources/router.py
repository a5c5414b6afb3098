"""The objects that a namespace's models share: the router and the objects it needs.

They have no owner. An owner that is deleted by mistake would take the router with it, so the
operator deletes them itself, after the last model.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from yaie_api import names
from yaie_api.http.access.cors import CorsPolicy
from yaie_api.tracing import settings as tracing
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import PodSettings
from yaie_operator.resources.network import network_policies
from yaie_operator.resources.shared import (
    CONTAINER_SECURITY,
    EXIT_MARGIN_S,
    POD_SECURITY,
    SETTLE_S,
    http_probe,
    http_service,
    image_pull_secrets,
    labels,
    manifest,
)

CONTAINER: Final = "router"
SECRET_KEY: Final = "prefix-key"  # noqa: S105 - the name of an entry, not a secret
SELECTOR: Final = {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
_LABELS: Final = labels(names.COMPONENT_ROUTER)
RESOURCES: Final = {"requests": {"cpu": "100m", "memory": "128Mi"}}
"""Of a router, unless the administrator sets others."""


def router_objects(
    namespace: str,
    config: OperatorConfig,
    *,
    secret: Object | None,
    new_key: Callable[[], bytes],
    lost_service: Object | None = None,
) -> tuple[Object, ...]:
    """The router and the objects that it needs.

    `secret`: the live Secret, or one that somebody has deleted: its key is kept if it is valid.
    `lost_service`: one that was deleted, whose address the next one gets. `new_key()`: bytes of a
    new key.
    """
    common: dict[str, Any] = {"namespace": namespace, "labels": _LABELS}
    key = _key(secret) or base64.b64encode(new_key().hex().encode()).decode()
    return (
        manifest(
            "v1",
            "Secret",
            name=names.ROUTER_SECRET,
            **common,
            type="Opaque",
            data={SECRET_KEY: key},
        ),
        manifest("v1", "ServiceAccount", name=names.ROUTER, **common),
        _role_binding(namespace, common),
        *(network_policies(namespace, config.network) if config.network else ()),
        *_disruption_budgets(config, common),
        _with_address_of(
            lost_service,
            http_service(
                name=names.ROUTER,
                **common,
                selector=SELECTOR,
                service_type=config.router_service_type,
                is_https=bool(config.router_tls_secret),
            ),
        ),
        _deployment(namespace, config, common),
    )


def _with_address_of(lost: Object | None, service: Object) -> Object:
    """The Service with the addresses that it had, so that clients that know them reach it. They
    are not part of its digest: a Service that is there keeps what it has.
    """
    addresses = {name: lost["spec"][name] for name in _ADDRESSES if lost and name in lost["spec"]}
    return {**service, "spec": {**service["spec"], **addresses}}


_ADDRESSES: Final = ("clusterIP", "clusterIPs")


def _key(secret: Object | None) -> str | None:
    """The stored key in base64 if it is valid (at least 16 bytes in hex), else None."""
    stored = str((secret or {}).get("data", {}).get(SECRET_KEY, ""))
    try:
        text = base64.b64decode(stored, validate=True).decode()
    except ValueError:
        return None
    return stored if re.fullmatch(r"([0-9a-f]{2}){16,}", text) else None


def _role_binding(namespace: str, common: dict[str, Any]) -> Object:
    subject = {"kind": "ServiceAccount", "name": names.ROUTER, "namespace": namespace}
    return manifest(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        name=names.ROUTER,
        **common,
        roleRef={
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": names.ROUTER_CLUSTER_ROLE,
        },
        subjects=[subject],
    )


def _disruption_budgets(config: OperatorConfig, common: dict[str, Any]) -> Iterator[Object]:
    """Of several routers a drained node takes one at a time; a single one must be able to move."""
    if config.router_replicas > 1:
        yield manifest(
            "policy/v1",
            "PodDisruptionBudget",
            name=names.ROUTER,
            **common,
            spec={
                "maxUnavailable": 1,
                "selector": {"matchLabels": SELECTOR},
                # A router that is not ready serves nobody: it may always go.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        )


def _deployment(namespace: str, config: OperatorConfig, common: dict[str, Any]) -> Object:
    return manifest(
        "apps/v1",
        "Deployment",
        name=names.ROUTER,
        **common,
        spec={
            "replicas": config.router_replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": SELECTOR},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": _pod_metadata(config.router_pod),
                "spec": {
                    "serviceAccountName": names.ROUTER,
                    "enableServiceLinks": False,
                    "securityContext": POD_SECURITY,
                    "terminationGracePeriodSeconds": (
                        SETTLE_S
                        + config.router_drain_delay_s
                        + config.router_limits.drain_s
                        + EXIT_MARGIN_S
                    ),
                    "containers": [_container(namespace, config)],
                    "volumes": [
                        {"name": "tmp", "emptyDir": {}},
                        *(volume for volume, _ in _mounted(config)),
                    ],
                    **image_pull_secrets(config),
                    **_placement(config),
                },
            },
        },
    )


def _pod_metadata(settings: PodSettings) -> dict[str, Any]:
    annotations = {"annotations": dict(settings.annotations)} if settings.annotations else {}
    return {"labels": {**settings.labels, **_LABELS}, **annotations}


def _placement(config: OperatorConfig) -> dict[str, Any]:
    """What says on which nodes the pods run. Several routers go to several nodes if they can."""
    settings = config.router_pod
    fields = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": list(settings.tolerations),
        "affinity": dict(settings.affinity),
        "topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": SELECTOR}, **constraint}
            for constraint in settings.topology_spread_constraints or _spread(config)
        ],
        "priorityClassName": settings.priority_class_name,
    }
    return {name: value for name, value in fields.items() if value}


def _spread(config: OperatorConfig) -> tuple[dict[str, Any], ...]:
    if config.router_replicas == 1:
        return ()
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname"}
    return (constraint | {"whenUnsatisfiable": "ScheduleAnyway"},)


def _mounted(config: OperatorConfig) -> Iterator[tuple[dict[str, Any], Mapping[str, str]]]:
    """Volumes with what the administrator keeps in each namespace, and the router's flags for each,
    with what each names in the folder.

    While the Secret with API keys is missing, its folder is empty and the router lets nobody in; a
    pod that waited for it would leave the one before it, which may be open. One with a certificate
    is waited for: without it, there is nothing to answer with.
    """
    if config.router_keys_secret:
        secret = {"secretName": config.router_keys_secret, "optional": True, "defaultMode": 0o440}
        yield {"name": "api-keys", "secret": secret}, {"--api-key-dir": ""}
    if config.router_tenant_limits:
        limits = {"name": config.router_tenant_limits, "optional": True, "defaultMode": 0o440}
        yield {"name": "limits", "configMap": limits}, {"--limits-dir": ""}
    if config.router_tls_secret:
        pair = {"secretName": config.router_tls_secret, "defaultMode": 0o440}
        files = {"--ssl-certfile": "/tls.crt", "--ssl-keyfile": "/tls.key"}
        yield {"name": "tls", "secret": pair}, files


def _folder(volume: dict[str, Any]) -> str:
    return f"/etc/yaie/{volume['name']}"


def _container(namespace: str, config: OperatorConfig) -> dict[str, Any]:
    key = {"secretKeyRef": {"name": names.ROUTER_SECRET, "key": SECRET_KEY}}
    scheme = "HTTPS" if config.router_tls_secret else None
    variables = CorsPolicy(config.router_allowed_origins).environment()
    variables |= tracing.variables(config.tracing_endpoint, config.tracing_sampling_ratio)
    return {
        "name": CONTAINER,
        "image": config.router_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["python", "-m", "yaie_router"],
        "args": [
            *("--namespace", namespace),
            *("--host", "0.0.0.0"),  # noqa: S104 - a pod listens for its Service
            *("--port", str(names.HTTP_PORT)),
            *("--metrics-port", str(names.ROUTER_METRICS_PORT)),
            *("--max-pending", str(config.router_max_pending)),
            *("--pending-timeout-s", str(config.router_pending_timeout_s)),
            *("--drain-delay-s", str(config.router_drain_delay_s)),
            *config.router_limits.arguments(),
            *("--replicas", str(config.router_replicas)),
            *(
                word
                for volume, flags in _mounted(config)
                for flag, file in flags.items()
                for word in (flag, _folder(volume) + file)
            ),
        ],
        "env": [
            {"name": names.ENV_POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": names.ENV_NAMESPACE, "value": namespace},
            {"name": names.ENV_PREFIX_KEY, "valueFrom": key},
            *({"name": name, "value": value} for name, value in variables.items()),
        ],
        "ports": [
            {
                "name": names.HTTP_PORT_NAME,
                "containerPort": names.HTTP_PORT,
                "protocol": "TCP",
            },
            {
                "name": names.METRICS_PORT_NAME,
                "containerPort": names.ROUTER_METRICS_PORT,
                "protocol": "TCP",
            },
        ],
        "resources": config.router_pod.resources or RESOURCES,
        "readinessProbe": http_probe(names.PATH_READY, period_s=2, failures=2, scheme=scheme),
        "livenessProbe": http_probe(names.PATH_LIVE, period_s=10, failures=6, scheme=scheme),
        "lifecycle": {"preStop": {"sleep": {"seconds": SETTLE_S}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's emptyDir
            *(
                {"name": volume["name"], "mountPath": _folder(volume), "readOnly": True}
                for volume, _ in _mounted(config)
            ),
        ],
    }

"""The operator's settings: one frozen object, read once from the environment and the flags."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeVar

from yaie_api import __version__, names
from yaie_api.http.access.cors import check_origin, parse_list
from yaie_operator.installation import (
    NetworkSettings,
    PodSettings,
    RouterLimits,
    read_network,
    read_pod,
    read_router_limits,
)

ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Choice = TypeVar("Choice", bound=str)
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class OperatorConfig:
    """Settings that are the same for all models.

    Attributes:
        namespaces: namespaces to watch; empty: all.
        engine_image: default image of engines, used at creation if the spec names no image.
        router_image: image of the routers.
        image_pull_policy: image pull policy of engines and routers.
        image_pull_secrets: names of the Secrets, in each namespace, with which their images are
            pulled.
        router_replicas: routers per namespace.
        router_max_pending: requests that may wait at a router for a model scaled to zero.
        router_pending_timeout_s: whole seconds that such a request waits.
        router_drain_delay_s: seconds that a router told to stop goes on accepting. Its answers
            close their connections meanwhile, so that no client sends into the closing.
        router_limits: limits and deadlines of the routers.
        router_service_type: type of the Service in front of the routers.
        router_allowed_origins: origins whose web pages may use the routers (CORS).
        router_keys_secret: name of the Secret, in each namespace, with the API keys of the routers'
            clients; empty: they ask for none.
        router_tenant_limits: name of the ConfigMap, in each namespace, with what each tenant may
            take; empty: there are no limits.
        router_tls_secret: name of the Secret, in each namespace, with the certificate and key of
            its routers; empty: they speak plain HTTP.
        router_pod: what is added to the routers' pods.
        network: who may connect to engines and routers; None: no NetworkPolicies.
        endpoint_format: template of `status.endpoint`; {namespace} is replaced.
        prometheus_url: Prometheus server that the autoscaler asks; empty: it asks the pods.
        tracing_endpoint: OpenTelemetry collector of routers and engines; empty: no traces.
        tracing_sampling_ratio: share of the traces that begin at a router which are recorded.
        metrics_key: API key that the autoscaler shows to pods, for engines that ask for one.
        workers: number of keys reconciled concurrently. Each waits for the API server most of the
            time.
        resync_s: seconds between full lists; each wait varies by ±20 %.
        watch_lag_s: seconds that a watch may be behind a list before the list counts as a repair.
        debounce_s: seconds during which changes in a namespace are collected before its shared
            objects are planned.
        rest_s: seconds after a look at a model, or at a namespace, before the next one.
        retry_base_s: seconds before the first retry; the wait doubles up to `retry_max_s`.
        recheck_s: seconds before the next look at a state that no watch reports, such as a foreign
            object with a needed name.
        progress_s: seconds between two questions to a download how far it is.
        autoscale_s: seconds between two looks of the autoscaler; each wait varies by ±20 %.
        gate_s: seconds between two looks at engines that wait for the routers.

    """

    namespaces: tuple[str, ...] = ()
    engine_image: str = f"yaie/engine:{__version__}"
    router_image: str = f"yaie/control-plane:{__version__}"
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    router_replicas: int = 1
    router_max_pending: int = 1024
    router_pending_timeout_s: int = 600
    router_drain_delay_s: int = 5
    router_limits: RouterLimits = field(default_factory=RouterLimits)
    router_service_type: ServiceType = "ClusterIP"
    router_allowed_origins: tuple[str, ...] = ()
    router_keys_secret: str = ""
    router_tenant_limits: str = ""
    router_tls_secret: str = ""
    router_pod: PodSettings = field(default_factory=PodSettings)
    network: NetworkSettings | None = None
    endpoint_format: str = "http://yaie-router.{namespace}.svc:8000/v1"
    prometheus_url: str = ""
    tracing_endpoint: str = ""
    tracing_sampling_ratio: float = 1.0
    metrics_key: str = field(default="", repr=False)
    workers: int = 16
    resync_s: float = 60.0
    watch_lag_s: float = 1.0
    debounce_s: float = 1.0
    rest_s: float = 0.5
    retry_base_s: float = 0.2
    retry_max_s: float = 60.0
    recheck_s: float = 10.0
    progress_s: float = 5.0
    autoscale_s: float = 2.0
    gate_s: float = 1.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from YAIE_* variables.

        Raises:
            ValueError: a variable has an invalid value; the error names it.

        """
        default = cls()
        return cls(
            namespaces=_names(environ.get("YAIE_NAMESPACES", "")),
            engine_image=environ.get("YAIE_ENGINE_IMAGE") or default.engine_image,
            router_image=environ.get("YAIE_ROUTER_IMAGE") or default.router_image,
            image_pull_policy=_choice(
                environ, "YAIE_IMAGE_PULL_POLICY", ("IfNotPresent", "Always", "Never")
            ),
            image_pull_secrets=_names(environ.get("YAIE_IMAGE_PULL_SECRETS", "")),
            router_replicas=_count(environ, "YAIE_ROUTER_REPLICAS", default.router_replicas),
            router_max_pending=_count(
                environ, "YAIE_ROUTER_MAX_PENDING", default.router_max_pending
            ),
            router_pending_timeout_s=_count(
                environ, "YAIE_ROUTER_PENDING_TIMEOUT_SECONDS", default.router_pending_timeout_s
            ),
            router_limits=read_router_limits(environ, "YAIE_ROUTER_LIMITS"),
            router_service_type=_choice(
                environ, "YAIE_ROUTER_SERVICE_TYPE", ("ClusterIP", "NodePort", "LoadBalancer")
            ),
            prometheus_url=_url(environ, "YAIE_PROMETHEUS_URL"),
            tracing_endpoint=_url(environ, "YAIE_TRACING_ENDPOINT"),
            tracing_sampling_ratio=_ratio(environ, "YAIE_TRACING_SAMPLING_RATIO"),
            metrics_key=environ.get("YAIE_METRICS_KEY", ""),
            workers=_count(environ, "YAIE_WORKERS", default.workers),
            router_allowed_origins=_origins(environ, "YAIE_ROUTER_ALLOWED_ORIGINS"),
            router_keys_secret=_object_name(environ, "YAIE_ROUTER_KEYS_SECRET"),
            router_tenant_limits=_object_name(environ, "YAIE_ROUTER_TENANT_LIMITS"),
            router_tls_secret=_object_name(environ, "YAIE_ROUTER_TLS_SECRET"),
            endpoint_format=_endpoint_format(environ, default.endpoint_format),
            router_pod=read_pod(environ, "YAIE_ROUTER_POD"),
            network=read_network(environ, "YAIE_NETWORK_POLICIES"),
        )


def _endpoint_format(environ: Mapping[str, str], plain: str) -> str:
    return plain.replace("http:", "https:") if environ.get("YAIE_ROUTER_TLS_SECRET") else plain


def _ratio(environ: Mapping[str, str], name: str) -> float:
    text = environ.get(name) or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError(f"{name} is {text!r}; write a number from 0 to 1")
    return ratio


def _url(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "")
    if text and not text.startswith(("http://", "https://")):
        raise ValueError(f"{name} is {text!r}; write http://HOST:PORT or https://HOST:PORT")
    return text


def _object_name(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "")
    if text and not _OBJECT_NAME.fullmatch(text):
        raise ValueError(f"{name} is {text!r}, which no object is named")
    if text.startswith(names.RESERVED_NAME_PREFIX):
        raise ValueError(f"{name} is {text!r}: that name is the operator's; choose another one")
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _origins(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        origins = parse_list(environ.get(name, ""))
        for origin in origins:
            check_origin(origin)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return origins


def _choice(environ: Mapping[str, str], name: str, choices: tuple[Choice, ...]) -> Choice:
    """The variable's value if it is one of the choices; the first choice is the default."""
    text = environ.get(name) or choices[0]
    for choice in choices:
        if text == choice:
            return choice
    raise ValueError(f"{name} is {text!r}; write one of {', '.join(choices)}")


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name} is {text!r}; write a number of at least 1")
    return int(text)

"""Writes docs/metrics.md from the table of metrics, `yaie_api.metrics`.

`--check` writes nothing and fails when the page is stale.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

from yaie_api import metrics, vllm_metrics
from yaie_api.metrics import Exporter, Metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = """\
# Metrics

Every metric that yaie exports, at `/metrics` of each process: for people who write a dashboard, an
alert or a scaler. `tools/render_metrics.py` writes this page from `yaie_api.metrics`; do not edit
it.
"""
SECTIONS: dict[Exporter, str] = {
    "engine": """\
At the engine's port, and at its admin port where it has one. With API keys, a scraper needs one,
too. An engine does not know which InferenceModel it belongs to: the chart's PodMonitors add
`namespace`, `pod` and `model` to each of its series. With several HTTP processes, any of them
answers for all.""",
    "router": """\
At port 9464 of a router's pod (`--metrics-port`), where nobody is asked for a key. `model` is an
InferenceModel's name, or "" if the request named none.
`namespace` and `pod` come from the scraper.""",
    "operator": """\
At port 8080 of the operator's pod. Only the operator that leads knows models.""",
}


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    meaning = metric.help.replace("|", "\\|")
    return f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {meaning} |"


VLLM = """\
## Under vLLM's names

With `--enable-vllm-metrics` (in an InferenceModel: `spec.engine.args: [--enable-vllm-metrics]`), an
engine shows its metrics under the names of vLLM 0.22, too, with its types and its labels
`model_name` and `engine`; the buckets of histograms are ours. vLLM's label `finished_reason` is our
`finish_reason`, where outputs that end with tool calls count as `stop`.

| vLLM's name | here |
|---|---|"""


def vllm_rows() -> list[str]:
    shown = [f"| `{name}` | `{ours.name}` |" for name, ours in vllm_metrics.SHOWN.items()]
    config = vllm_metrics.CACHE_CONFIG
    labels = ", ".join(f"`{label}`" for label in config.labels)
    shown.append(f"| `{config.name}` | only with the labels {labels} |")
    return shown + [f"| `{name}` | no: {why} |" for name, why in vllm_metrics.MISSING.items()]


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for exporter, about in SECTIONS.items():
        parts += [f"## Of the {exporter}\n", f"{about}\n"]
        parts += ["| metric | type | unit | labels | meaning |", "|---|---|---|---|---|"]
        parts += [row(one) for one in metrics.every() if one.exporter == exporter]
        parts.append("")
    return "\n".join([*parts, VLLM, *vllm_rows()]).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(pages.write(PAGE, page, __doc__))

"""Shows metrics under vLLM's names, with its labels, when they are scraped."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from yaie.config import ModelInfo
from yaie_api import vllm_metrics


class VllmNames(Collector):
    """The families of other collectors once more: those that vLLM has, too, under its names."""

    def __init__(self, collectors: Iterable[Collector], info: ModelInfo, model_name: str) -> None:
        self._collectors = tuple(collectors)
        self._info = info
        self._labels = dict(
            zip(vllm_metrics.LABELS, (model_name, vllm_metrics.ENGINE), strict=True)
        )

    def collect(self) -> Iterator[Metric]:
        found = {family.name: family for one in self._collectors for family in one.collect()}
        for name, ours in vllm_metrics.SHOWN.items():
            family = found.get(ours.name.removesuffix("_total"))
            if family is not None:
                yield self._renamed(family, name.removesuffix("_total"))
        yield self._cache_config()

    def _renamed(self, family: Metric, name: str) -> Metric:
        """The family under another name, with its samples' labels translated.

        Samples that then have the same labels are added up.
        """
        shown = Metric(name, family.documentation, family.type)
        sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for sample in family.samples:
            key = (name + sample.name.removeprefix(family.name), self._translated(sample))
            sums[key] = sums.get(key, 0.0) + sample.value
        for (sample_name, labels), value in sums.items():
            shown.add_sample(sample_name, dict(labels), value)
        return shown

    def _translated(self, sample: Sample) -> tuple[tuple[str, str], ...]:
        ours, theirs = vllm_metrics.FINISHED
        own = {
            theirs if label == ours else label: vllm_metrics.REASONS.get(value, value)
            for label, value in sample.labels.items()
        }
        return tuple((self._labels | own).items())

    def _cache_config(self) -> GaugeMetricFamily:
        metric = vllm_metrics.CACHE_CONFIG
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        pages = (str(self._info.page_size), str(self._info.kv_pages))
        family.add_metric([vllm_metrics.ENGINE, *pages], 1.0)
        return family

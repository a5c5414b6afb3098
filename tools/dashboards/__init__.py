"""The Grafana dashboards of the chart, as code: panels over the metrics of `yaie_api.metrics`."""

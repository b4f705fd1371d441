"""What a service shows over plain HTTP, as tests look at it."""

import http.client
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bernstein_runtime.endpoint import SERVICES

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Observed:
    """The services whose `[metrics] endpoint` has this port."""

    base_port: int

    def get(self, service: str, path: str) -> tuple[int, str]:
        port = self.base_port + SERVICES.index(service)
        connection = http.client.HTTPConnection(HOST, port, timeout=10)
        connection.request("GET", path)
        with connection.getresponse() as answer:
            found = answer.status, answer.read().decode()
        connection.close()
        return found

    def names(self, service: str) -> dict[str, str]:
        """Family → its kind; counters with their suffix."""
        families = text_string_to_metric_families(self.get(service, "/metrics")[1])
        return {
            each.name + ("_total" if each.type == "counter" else ""): each.type for each in families
        }

    def value(self, service: str, name: str, **labels: str) -> float:
        """The sum of the samples with these labels among theirs; 0 without any."""
        families = text_string_to_metric_families(self.get(service, "/metrics")[1])
        samples = (sample for family in families for sample in family.samples)
        return sum(
            sample.value
            for sample in samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

"""Public: certification of a connector against a real service, with faults injected in the network between them."""

from keep_actors.testing.certification.faults import Act, Fault, Way
from keep_actors.testing.certification.proxy import Proxy
from keep_actors.testing.certification.rows import CertificationRow, RowOutcome
from keep_actors.testing.certification.subject import Certification, RunningService, ServiceAddress
from keep_actors.testing.certification.suite import certify
from keep_actors.testing.certification.table import CertificationTable, RowResult

__all__ = [
    "Act",
    "Certification",
    "CertificationRow",
    "CertificationTable",
    "Fault",
    "Proxy",
    "RowOutcome",
    "RowResult",
    "RunningService",
    "ServiceAddress",
    "Way",
    "certify",
]

"""`python -m tests.supply.bom`: write `keep-actors.cdx.json`, the bill of materials in the wheel (CycloneDX 1.6).

Made from `pyproject.toml` and the tables below, and from nothing that differs between two machines: no time, no serial
number, no versions that happen to be installed. A test fails as long as the file is not what is written here.
"""

import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any, Final

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from engine.build import lock

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "keep-actors.cdx.json"
NOT_FOR_USERS: Final = frozenset({"test", "bench", "docs", "examples"})
"""Extras that are for those who work on this project."""
REQUIRES: Final = "keep-actors:requires"
"""The property with the versions that are allowed: this form of the standard has a place for one version only."""

LICENCES: Final = {
    "anyio": "MIT",
    "apsw": "any-OSI",
    "click": "BSD-3-Clause",
    "cronsim": "BSD-3-Clause",
    "httpx": "BSD-3-Clause",
    "httpx2": "BSD-3-Clause",
    "imapclient": "BSD-3-Clause",
    "mcp": "MIT",
    "msgspec": "BSD-3-Clause",
    "openpyxl": "MIT",
    "opentelemetry-api": "Apache-2.0",
    "opentelemetry-exporter-prometheus": "Apache-2.0",
    "opentelemetry-sdk": "Apache-2.0",
    "platformdirs": "MIT",
    "prometheus-client": "Apache-2.0 AND BSD-2-Clause",
    "psycopg": "LGPL-3.0-only",
    "tree-sitter": "MIT",
    "tree-sitter-javascript": "MIT",
    "tzdata": "Apache-2.0",
    "wasmtime": "Apache-2.0 WITH LLVM-exception",
}


def requirements() -> dict[Requirement, ComponentScope]:
    """Whatever the wheel needs: always, or for one of its extras."""
    needed, extras = project()["dependencies"], project()["optional-dependencies"]
    found = {Requirement(line): ComponentScope.REQUIRED for line in needed}
    for extra, lines in extras.items():
        if extra not in NOT_FOR_USERS:
            found |= {Requirement(line): ComponentScope.OPTIONAL for line in lines}
    # An extra that gathers others names the project itself.
    return {each: scope for each, scope in found.items() if each.name != project()["name"]}


def project() -> dict[str, Any]:
    """The table `project` of `pyproject.toml`."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def bill() -> str:
    """The bill, as it should be in the file."""
    described = project()
    name, version = described["name"], described["version"]
    wheel = Component(
        name=name,
        version=version,
        bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
        description=described["description"],
        licenses=[licence(described["license"])],
        components=[engine()],
    )
    needed = [component(each, scope) for each, scope in requirements().items()]
    bom = Bom(metadata=BomMetaData(component=wheel), components=needed)
    bom.register_dependency(wheel, needed)
    written = json.loads(JsonV1Dot6(bom).output_as_string())
    # They would be others each time, and the standard does without.
    del written["serialNumber"], written["metadata"]["timestamp"]
    return json.dumps(written, indent=2, sort_keys=True) + "\n"


def component(requirement: Requirement, scope: ComponentScope) -> Component:
    """One package, and what is compiled into it."""
    name, version = requirement.name, pinned(requirement)
    return Component(
        name=name,
        version=version,
        bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
        scope=scope,
        licenses=[licence(LICENCES[name])],
        properties=[Property(name=REQUIRES, value=str(requirement.specifier))],
        components=inside(requirement),
    )


def inside(requirement: Requirement) -> list[Component]:
    """Code of others that comes in a package: named, because its mistakes would be ours."""
    match requirement.name:
        case "apsw":
            # SQLite's version is that of the APSW that is installed, without its last number.
            allowed = Property(name=REQUIRES, value=str(requirement.specifier))
            source = PackageURL("generic", None, "sqlite")
            licences = [licence("blessing")]
            return [Component(name="SQLite", bom_ref="sqlite", purl=source, licenses=licences, properties=[allowed])]
        case _:
            return []


def engine() -> Component:
    """The engine in the wheel (`engine.wasm`), by its hash, and all that was compiled into it."""
    locked = lock()
    source, packages = locked["source"], locked["compilers"]
    name, package = "keep_sandbox/engine.wasm", partial(PackageURL, "deb", "debian")
    archive = HashType(alg=HashAlgorithm.SHA_256, content=source["sha256"])
    compiled = [
        # The version of the source distribution is that of the engine, and one number more.
        Component(
            name="QuickJS-ng",
            version=source["engine"],
            bom_ref="quickjs-ng",
            purl=PackageURL("pypi", None, source["name"], source["version"]),
            hashes=[archive],
            licenses=[licence("MIT AND Unicode-3.0")],
        ),
        Component(
            name="wasi-libc",
            version=packages["wasi-libc"],
            bom_ref="wasi-libc",
            purl=package("wasi-libc", packages["wasi-libc"]),
            licenses=[licence("MIT AND CC0-1.0 AND BSD-2-Clause")],
        ),
        Component(
            name="compiler-rt",
            version=packages["libclang-rt-14-dev-wasm32"],
            bom_ref="compiler-rt",
            purl=package("libclang-rt-14-dev-wasm32", packages["libclang-rt-14-dev-wasm32"]),
            licenses=[licence("Apache-2.0 WITH LLVM-exception")],
        ),
    ]
    result = HashType(alg=HashAlgorithm.SHA_256, content=locked["hashes"]["engine.wasm"])
    return Component(name=name, type=ComponentType.FILE, bom_ref="engine", hashes=[result], components=compiled)


def pinned(requirement: Requirement) -> str | None:
    """The version, if only one will do."""
    exact = [each.version for each in requirement.specifier if each.operator == "=="]
    return exact[0] if exact else None


def licence(spdx: str) -> DisjunctiveLicense | LicenseExpression:
    """By its name in the SPDX list, or several of them."""
    return LicenseExpression(spdx) if " " in spdx else DisjunctiveLicense(id=spdx)


if __name__ == "__main__":
    FILE.write_text(bill(), "utf-8")

"""`longca doctor`: what this machine can do, what disturbs measurements, what to install."""

from __future__ import annotations

import argparse

HELP = "show what this machine can measure, what disturbs measurements, and what to install"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help="the device to examine (default: cuda if there is a GPU)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from longca import devices
    from longca.bench.plan.suite import Suite
    from longca.bench.run import environment, health
    from longca.kernels import registry
    from longca.kernels.base import No

    device = args.device or devices.kind()
    facts = environment.describe(device, Suite())
    answers = {label: registry.available(registry.get(label), device) for name in registry.names() for label in registry.labels(name)}
    kernels = {label: answer.reason if isinstance(answer, No) else "" for label, answer in answers.items()}
    found = health.findings()
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode({"environment": facts, "kernels": kernels, "findings": found}), indent=1).decode())
        return 0
    packages = ", ".join(f"{name} {number}" for name, number in facts.packages.items())
    print(f"device    {facts.device}" + (f", driver {facts.driver}, {facts.gpu_memory_mib} MiB" if device == "cuda" else ""))
    print(f"host      {facts.cpu}, {facts.cores} cores, {facts.system}, Python {facts.python}")
    print(f"packages  {packages or 'torch is missing: pip install torch'}")
    print(f"kernels   {', '.join(label for label, why in kernels.items() if not why) or 'none'}")
    for why, labels in _missing(kernels, device).items():
        print(f"  not here: {', '.join(labels)} ({why})")
    if any(kernels.values()):
        print("  `longca ls kernels NAME` shows how to install one.")
    for finding in found:
        print(f"warning   {finding}")
    if not found:
        print("no problems for measurements were found.")
    return 0


def _missing(kernels: dict[str, str], device: str) -> dict[str, list[str]]:
    """Returns the kernels that do not run here, by reason. On a CPU, what to install for a GPU is left out."""
    by_reason: dict[str, list[str]] = {}
    for label, why in kernels.items():
        if why:
            by_reason.setdefault(why if device == "cuda" else why.partition(";")[0], []).append(label)
    return by_reason

"""The child's side: loads a service and gives it jobs until the supervisor closes the channel.

`python -m longca.processes.child_main CHANNEL`: a socket by its number. Each line on it is a JSON object with one key. What a job prints
goes to stdout and stderr, which the supervisor reads apart from it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

from longca.errors import LongcaError
from longca.text import short

Tell = Callable[
    [dict[str, Any]], None
]  # {"phase": name} begins another phase, which has its own deadline; {"reply": ...} is one more reply


class Service(Protocol):
    """Made by `service(hello, tell)`."""

    ready: Any  # what the supervisor is told once the service is loaded

    def handle(self, job: Any) -> Iterator[Any]:
        """Does a job and yields its replies. What it raises ends the process."""


def load(name: str) -> Any:
    """The attribute that "module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def main(channel: int) -> None:
    os.set_inheritable(channel, False)
    with socket.socket(fileno=channel) as link, link.makefile("rb") as lines:

        def tell(message: dict[str, Any]) -> None:
            link.sendall(json.dumps(message).encode() + b"\n")

        first = json.loads(lines.readline())
        try:
            service: Service = load(first["service"])(first["hello"], tell)
        except Exception as error:
            traceback.print_exc()
            tell({"failed": short(str(error).rstrip(".") if isinstance(error, LongcaError) else f"{type(error).__name__}: {error}")})
            return
        tell({"ready": service.ready})
        for number, line in enumerate(lines, 1):
            for reply in service.handle(json.loads(line)):
                tell({"reply": reply})
            tell({"done": number})


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Finds and removes IP addresses in free texts. Versions, times, slices and names of C++ look similar and stay."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address

IPV4 = r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"
START = r"(?<![A-Za-z0-9.])"
END = r"(?![A-Za-z0-9+]|\.(?:[0-9]|dev|post))"
PORT = r"(?=\s?<[0-9]{1,5}>|:[0-9]{1,5}(?![0-9])|,?\sport\b)"  # <38219> as NCCL writes it
NAMED = re.compile(  # what the text calls an address, so that it is no version
    rf"""(?i)(?P<before>(?<![^\W_])(?:host(?:name)?|address|addr|server|peer|node|ip|connect(?:ed|ing|ions?)?\s+(?:to|from|with))
        (?:['"]?\s*[=:]{{1,2}}\s*|\s+)['"(\[]?){IPV4}{END}
    | {START}{IPV4}{PORT}""",
    re.VERBOSE,
)
ANY_IPV4 = re.compile(START + IPV4 + END)
PRIVATE = [IPv4Network(name) for name in ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")]
LIBRARIES = "(?:lib)?(?:cublas|cuda|cudnn|cufft|cufile|curand|cusolver|cusparse|cutlass|tensorrt)"
VERSION_OF = re.compile(  # before a number of four parts: TensorRT 10.3.0.26, nvidia-curand-cu12==10.3.9.90
    rf"(?i)(?<![a-z])(?:versions?|{LIBRARIES}(?:[_-](?:cu[0-9]+|frontend|libs))*)(?:\s*[=<>~!]=\s*|\s*[=:]\s*|\s+|[_-])$"
)
LONGEST_NAME = 60  # letters of a library's name that are read
LIKE_IPV6 = re.compile(rf"{START}[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?<!\.)(?![A-Za-z0-9])")
SLICE = re.compile(r"[0-9]*::[0-9]*")


def without_addresses(text: str, mark: str) -> str:
    """The text with `mark` for addresses: those of private networks, and all that have a port or are called an address."""
    text = NAMED.sub(lambda match: (match["before"] or "") + mark, text)
    text = LIKE_IPV6.sub(lambda match: match[0] if _is_slice(match) else _without_ipv6(match[0], mark), text)
    return ANY_IPV4.sub(lambda match: mark if _is_private(match) else match[0], text)


def _is_private(match: re.Match[str]) -> bool:
    try:
        address = IPv4Address(match[0])
    except ValueError:
        return False
    before = match.string[max(0, match.start() - LONGEST_NAME) : match.start()]
    return any(address in network for network in PRIVATE) and not VERSION_OF.search(before)


def _is_slice(match: re.Match[str]) -> bool:
    """Whether it is a part of code such as x[2048::2]."""
    text, start, end = match.string, *match.span()
    return SLICE.fullmatch(match[0]) is not None and (text[start - 1 : start] == "[" or text[end : end + 1] == "]")


def _without_ipv6(text: str, mark: str) -> str:
    """A text of hexadecimal digits and colons with `mark` for addresses; it may begin with a rank and end with a port."""
    groups = re.split(r"(?<!:):(?!:)", text)
    for first in range(len(groups)):
        for last in range(min(len(groups), first + 8), first, -1):
            if _is_ipv6(":".join(groups[first:last])):
                rest = [_without_ipv6(":".join(groups[last:]), mark)] if groups[last:] else []
                return ":".join([*groups[:first], mark, *rest])
    return text


def _is_ipv6(text: str) -> bool:
    """Whether it is an address of a network in use; a::b and c10::add belong to reserved ones."""
    try:
        address = IPv6Address(text)
    except ValueError:
        return False
    return not address.is_reserved or "." in text or address.ipv4_mapped is not None

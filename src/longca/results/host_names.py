"""Finds and removes names of machines, accounts and secrets in free texts, such as the message of a library.

Version numbers, file names, module paths and the sites of well-known projects look similar and stay.
"""

from __future__ import annotations

import re
import sys

from longca.results.ip_addresses import IPV4, without_addresses

REMOVED = "…"


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


FILE_ENDS = _words(
    "a bin c cc cfg conf cpp csv cu cubin cuh dll exe gz h hpp html ini json jsonl llir log md npy npz o pt pth ptx py pyc pyd pyx rs sh",
    "so sqlite svg tar tmp toml ttgir ttir txt whl xz yaml yml zip",
)
ALWAYS = _words("com org edu gov mil")  # the last label of hosts only
OFTEN = _words(  # also a name in code, such as threading.local
    "ai arpa biz cloud cluster corp dev example home hpc info internal intranet io lan local localdomain net science tech test"
)
COUNTRIES = _words(
    "ae ar au be bg br ca ch cl cn cz de dk ee es eu fi fr gr hk hr hu ie il jp kr kz lt lu lv mx nl nz pt ro ru sa se sg sk th tr tw ua",
    "uk vn za",
)
WORDS_AND_COUNTRIES = _words("at id in is it no pl si us")
SITES = _words(
    "arxiv.org developer.nvidia.com dev-discuss.pytorch.org discuss.pytorch.org docs.nvidia.com docs.pytorch.org docs.python.org",
    "download.pytorch.org ghcr.io github.com huggingface.co numpy.org nvidia.com openreview.net pypi.org python.org pytorch.org",
    "triton-lang.org ui.perfetto.dev",
)
SITES_OF_PAGES = (".readthedocs.io", ".github.io")
IN_CODE = sys.stdlib_module_names | _words("aten cls cuda cudnn cute cutlass flash flashinfer jax longca nn np numpy self tl torch triton")
MACHINE = re.compile(r"(?:compute|dgx|hgx|host|ip|login|nid|node|server|srv)-?\d[\da-z-]*\d[a-z]*")
VALUE = r"""[^\s'"`,;&)]+"""

SECRET = re.compile(
    rf"""(?i)(?P<name>(?<![\w-])(?:[\w-]*(?:passw(?:or)?d|secret|api[_-]?key|access[_-]?key)|authorization)['"]?\s*[=:]\s*(?:(?:bearer|basic)\s+)?
    | (?<![\w-])(?:[\w-]*[_-])?token\s*=\s*(?![\d.]+(?!\w))                  # of a sequence, token = 17 is a position
    | (?<![\w-])--(?:[\w-]+[_-])?(?:passw(?:or)?d|secret|api[_-]?key|access[_-]?key|token(?!\s+[\d.]+(?!\w)))(?:\s+|['"],\s*)(?!--)
    | \bbearer\s+(?=[\w.-]{{16}}))(?:(?P<quote>['"])(?:(?!(?P=quote)).)*(?P=quote)|['"]?{VALUE})""",
    re.VERBOSE,
)
KEY = re.compile(r"(?<!\w)(?:hf_|gh[opsur]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA)\w[\w-]{15,}")
ADDRESS = re.compile(  # with an account, or in brackets before a port
    rf"""(?<![\w.+-])[\w.+-]+@{IPV4}(?!\w)
    | (?<!\w)\[(?:[\da-fA-F]*:[\da-fA-F:.]*:[\da-fA-F.]*|{IPV4}|[A-Za-z][\w.-]*)\](?=:\d{{2,5}}\b)""",
    re.VERBOSE,
)
ACCOUNT = re.compile(r"""(?<![\w@.+-])\w[\w.+-]*@(?!v?\d+(?:\.\w+)*(?![\w.-])|plt\b|GLIBC)\w[\w-]+(?:\.[\w-]+)*(?:[:/][^\s'"`,;)]+)?""")
DOTTED = re.compile(
    r"""(?<![\w.@/\\-])(?P<host>(?:[a-zA-Z\d](?:[a-zA-Z\d-]*[a-zA-Z\d])?\.)+[a-zA-Z\d-]*[a-zA-Z\d])(?![\w(-]|\.\w)""" rf"(?:/{VALUE})?"
)


def without_hosts(text: str) -> str:
    """The text with `…` for secrets, accounts (user@host), addresses and fully qualified host names."""
    if not any(sign in text for sign in ".@:=-_ "):
        return text
    text = SECRET.sub(lambda match: match["name"] + REMOVED.join([match["quote"] or ""] * 2), text)
    text = KEY.sub(REMOVED, text)
    text = without_addresses(ADDRESS.sub(REMOVED, text), REMOVED)
    text = ACCOUNT.sub(REMOVED, text)
    return DOTTED.sub(lambda match: REMOVED if is_host(match["host"]) else match[0], text)


def is_host(name: str) -> bool:
    """Whether a dotted name is that of a machine, rather than a version, a file, a module or a well-known site."""
    labels = name.lower().split(".")
    first, last = labels[0], labels[-1]
    if len(labels) < 2 or is_site(name) or last in FILE_ENDS or last.isdigit():
        return False
    if last in ALWAYS or MACHINE.fullmatch(first):
        return True
    if first in IN_CODE or any(label.isdigit() for label in labels):
        return False
    if last in OFTEN or last in COUNTRIES:
        return len(labels) > 2 or "-" in first or first[-1].isdigit()
    return last in WORDS_AND_COUNTRIES and len(labels) > 2 and re.search(r"[\d-]", ".".join(labels[:-1])) is not None


def is_site(name: str) -> bool:
    """Whether a dotted name is a site that documents or distributes software."""
    return name.lower() in SITES or name.lower().endswith(SITES_OF_PAGES)


def is_public(authority: str) -> bool:
    """Whether the host of a URL is a public one: it has no account, no port, and is not named as machines of a cluster are."""
    if not re.fullmatch(r"[\w.-]+", authority):
        return False
    *labels, last = authority.lower().split(".")
    return bool(labels) and last.isalpha() and last not in OFTEN - {"ai", "dev", "io", "net"} and not MACHINE.fullmatch(labels[0])

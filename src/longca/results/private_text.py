"""Removes what is private from the texts of a journal: folders of absolute paths, names of machines and accounts, given words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from longca.results.host_names import FILE_ENDS, REMOVED, is_public, is_site, without_hosts
from longca.results.record import Environment, MaskEntry, Record

FREE_TEXTS = ("reason", "system")  # elsewhere a private word may be the name of a kernel
COMMANDS = ("bin", "sbin", "dev", "proc")  # folders whose files have the same names on all machines
URL = re.compile(r"""(?P<scheme>(?<![\w+.-])[a-zA-Z][\w+.-]*)://(?P<authority>[^\s'"`<>)/]*)(?P<rest>[^\s'"`<>)]*)""")
START = r"(?:~(?:[A-Za-z_][\w.-]*)?/+|/+|(?:\.\.[/\\]+)+|[A-Za-z]:[/\\]+|\\\\+(?=\w)|(?:\w[\w.-]*[/\\]+)*(?i:home|users)[/\\]+)"
LETTER = r"""[^\s'"`:,;()<>|/\\\[\]{}]"""
PART = f"{LETTER}+"
QUOTED_PATH = re.compile(rf"""(?P<quote>['"`])(?P<path>{START}[^'"`\n]*\w[^'"`\n]*)(?P=quote)""")
BARE_PATH = re.compile(
    rf"(?P<before>(?<![\w…./\\~)\]}}%*-])|(?<![\w-])-[A-Za-z]{{1,8}})(?P<path>{START}(?={LETTER}(?:{LETTER}|[/\\])){PART}(?:[/\\]+{PART})*[/\\]*)"
)
WHOLE_PATH = re.compile(rf"""{START}[^'"`\n]*""")  # also with spaces
# what must not be in a text in the end, in other words than above
ANY_PATH = re.compile(
    r"""(?:^|[\s'"`=:(\[{<>|,;@!&+\#]|(?<![\w-])-[a-z]{1,8})(?:~[\w.-]*/|/|\.\.[/\\]|[a-z]:[/\\]|\\\\)(?:\w[\w.@-]|\w[/\\])
    | [/\\](?:home|users)[/\\]+\w""",
    re.VERBOSE | re.IGNORECASE,
)
IN_WORD = r"[^\W_]"  # letters and digits; in alice_kernel, alice is a word
T = TypeVar("T", Record, MaskEntry, Environment)


class PrivateText:
    """Finds and removes private parts of texts; `words` are names of hosts and users, and `keep` are words that are none."""

    def __init__(self, words: Iterable[str] = (), keep: Iterable[str] = ()) -> None:
        self._keep = {word.lower() for word in keep}
        wanted = sorted({word for word in words if word.lower() not in self._keep}, key=len, reverse=True)
        cases = [re.escape(word) if len(word) < 3 else f"(?i:{re.escape(word)})" for word in wanted]  # "Al" is a name, "al" a syllable
        self.words = re.compile(rf"(?<!{IN_WORD})(?:{'|'.join(cases)})(?!{IN_WORD})") if cases else None

    def name(self, text: str) -> str:
        """A name, such as that of a mask or a plugin file, without the folders of its path."""
        return _file_name(text) if WHOLE_PATH.fullmatch(text) else self._beside_urls(text, _without_paths)

    def free(self, text: str) -> str:
        """A free text without paths, hosts, accounts, secrets and private words; URLs of public sites stay. A text in which something
        private may remain is removed as a whole."""
        cleaned = self._beside_urls(text, self._plain)
        return REMOVED if self.remains(cleaned) else cleaned

    def _beside_urls(self, text: str, clean: Callable[[str], str]) -> str:
        """The text, cleaned by `clean` except for its URLs, which have paths and hosts of their own."""
        parts, end = [], 0
        for url in URL.finditer(text):
            parts += [clean(text[end : url.start()]), self._url(url)]
            end = url.end()
        return "".join([*parts, clean(text[end:])])

    def _plain(self, text: str) -> str:
        return self._without_words(self._without_hosts(_without_paths(text)))

    def _without_hosts(self, text: str) -> str:
        """The text without hosts; what `keep` names stays."""
        cleaned = without_hosts(text)
        if cleaned == text or not self._keep:
            return cleaned
        kept = re.compile(rf"(?i)(?<![\w.@-])(?:{'|'.join(map(re.escape, self._keep))})(?![\w@-])")
        pieces, end = [], 0
        for word in kept.finditer(text):
            pieces += [without_hosts(text[end : word.start()]), word[0]]
            end = word.end()
        return "".join([*pieces, without_hosts(text[end:])])

    def _without_words(self, text: str) -> str:
        return self.words.sub(REMOVED, text) if self.words else text

    def _url(self, url: re.Match[str]) -> str:
        if not url["authority"] + url["rest"]:
            return url[0]  # env://
        if not _is_public(url):
            return f"{url['scheme']}://{REMOVED}"
        address, question, query = url["rest"].partition("?")
        asked = query if is_site(url["authority"]) else REMOVED if query else ""  # which may be a key
        return self._without_words(f"{url['scheme']}://{url['authority']}{address}{question}{asked}")

    def remains(self, text: str, words: bool = True) -> str:
        """What in a text is private after all, such as "the word 'alice'"; empty if nothing is. With `words`, given words count too."""
        plain = URL.sub(lambda url: "" if _is_public(url) and self._url(url) == url[0] else url[0], text)
        if path := ANY_PATH.search(plain):
            return f"an absolute path, {plain[path.start() :].strip()!r}"
        if any(url["authority"] + url["rest"] not in ("", REMOVED) for url in URL.finditer(plain)):
            return f"a URL of a private host, {plain!r}"
        if self._without_hosts(plain) != plain:
            return f"the name of a host or an account, {plain!r}"
        word = self.words.search(text) if self.words and words else None
        return f"the word {word[0]!r}" if word else ""


def _is_public(url: re.Match[str]) -> bool:
    return url["scheme"].lower() in ("http", "https", "git+https") and is_public(url["authority"])


def _without_paths(text: str) -> str:
    if "/" not in text and "\\" not in text:
        return text
    text = QUOTED_PATH.sub(lambda match: match["quote"] + _file_name(match["path"]) + match["quote"], text)
    return BARE_PATH.sub(lambda match: match["before"] + _file_name(match["path"]), text)


def _file_name(path: str) -> str:
    """The name of the file at the end of a path; `…` where it may be a folder, which may be named after its owner."""
    inside = path.rstrip(".")
    parts = [part for part in re.split(r"[/\\]+", inside) if part not in ("", "..")]
    is_folder = not parts or inside.endswith(("/", "\\"))
    ends = parts[-1].lower().split(".")[1:] if parts else []
    known = any(end in FILE_ENDS for end in ends) or (len(parts) > 1 and parts[-2] in COMMANDS)
    return (parts[-1] if known and not is_folder else REMOVED) + path[len(inside) :]


class Cleaner:
    """Cleans the records, masks and environments of a journal, keys of dictionaries included; counts the texts that change.

    Names that differ stay different, also from those in `names`: m.json and /home/ada/m.json become m.json and m-2.json.
    """

    def __init__(self, private: PrivateText, names: Iterable[str] = ()) -> None:
        self._private, self._taken, self._named = private, set(names), dict[str, str]()
        self._free = cache(private.free)  # thousands of records repeat their texts
        self.changed = 0

    def __call__(self, value: T) -> T:
        fields = msgspec.to_builtins(value)
        cleaned = {
            name: self._plugins(item) if name == "plugins" else self._clean(item, name in FREE_TEXTS) for name, item in fields.items()
        }
        return msgspec.convert(cleaned, type(value))

    def _plugins(self, files: Mapping[str, Any]) -> dict[str, Any]:
        """Plugin files with the names in them. A file may be named after anybody; the names in it are those of records."""
        names = _distinct({file: self._free(self._private.name(file)) for file in files})
        self.changed += sum(old != new for old, new in names.items())
        return {names[file]: self._clean(item, free=False) for file, item in files.items()}

    def _clean(self, value: Any, free: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, free)
        if isinstance(value, dict):
            names = _distinct({key: self._text(key, free) for key in value})
            return {names[key]: self._clean(item, free) for key, item in value.items()}
        return [self._clean(item, free) for item in value] if isinstance(value, list) else value

    def _text(self, text: str, free: bool) -> str:
        cleaned = self._free(text) if free else self._name(text)
        self.changed += cleaned != text
        return cleaned

    def _name(self, text: str) -> str:
        if text not in self._named:
            cleaned = self._private.name(text)
            self._named[text] = text if cleaned == text else _numbered(cleaned, self._taken)
            self._taken.add(self._named[text])
        return self._named[text]


def _distinct(names: Mapping[str, str]) -> dict[str, str]:
    """New names by old ones, no two the same; those that do not change stay."""
    distinct = {old: new for old, new in names.items() if old == new}
    for old, new in names.items():
        if old != new:
            distinct[old] = _numbered(new, distinct.values())
    return distinct


def _numbered(name: str, taken: Collection[str]) -> str:
    """The name, with a number before its end where it is taken: k-2.py."""
    path, numbered, number = PurePosixPath(name), name, 2
    while numbered in taken:
        numbered, number = f"{path.stem}-{number}{path.suffix}", number + 1
    return numbered

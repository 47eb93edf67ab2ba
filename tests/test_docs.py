"""README, CONTRIBUTING and docs: links lead somewhere, commands parse, and the site has every page."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from longca.cli import Parser, verb_module, verbs

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(longca [^`]+)`")
FILLED_IN = re.compile(r"\bCOMMAND\b|\{|\|")  # what a reader must fill in


def anchors(page: Path) -> set[str]:
    """The anchors of headings, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} does not exist"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_repository_exist(page: Path) -> None:
    """Paths in backticks that begin with a folder of the repository; a file of another commit is named with it."""
    folders = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")))
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`(?! of commit)", FENCED.sub("", page.read_text()))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_site_has_every_page() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in DOCS)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def commands(page: Path) -> Iterator[str]:
    """The commands of a page, in blocks and in sentences."""
    text = page.read_text()
    blocks = "\n".join(FENCED.findall(text)).replace("\\\n", " ")
    for line in blocks.splitlines():
        found = re.search(r"(?:^|-- |\$ )(longca [a-z].*)$", line.strip())
        if found and not line.strip().startswith("longca: "):
            yield found[1]
    yield from INLINE.findall(FENCED.sub("", text))


def check_flags(command: str) -> None:
    _, verb, *words = shlex.split(command, comments=True)
    parser = Parser()
    if not verb.startswith("-"):
        assert verb in verbs(), command
        verb_module(verb).add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_flags_that_exist(page: Path) -> None:
    for command in commands(page):
        if not FILLED_IN.search(command.partition("#")[0]):
            check_flags(command)


@pytest.mark.parametrize("verb", verbs())
def test_examples_below_help_have_flags_that_exist(verb: str) -> None:
    for example in getattr(verb_module(verb), "EXAMPLES", ()):
        assert example.startswith(f"longca {verb} ")
        check_flags(example)

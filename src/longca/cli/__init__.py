"""The command `longca`: every module here whose name does not start with an underscore is a verb.

A verb holds `HELP` (one line) and `add_arguments(parser)`; and `EXAMPLES`, lines below its help, if it is used often. It calls the
function of its name with the flags, prints the result (with `--json` as one text, or with `JSON_LINES` as one object per row) and ends with
exit code `FAILED` where the result is not ok. A verb that does more has `run(args) -> int`, which imports heavy modules, so that
`longca --help` and `longca ls` answer at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NoReturn

import longca
from longca import __version__
from longca.cli._flags import call, refuse_empty
from longca.cli._tables import show
from longca.errors import BadInput, LongcaError, unknown
from longca.text import printable, short

INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports for SIGINT and SIGPIPE
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # of a file that stdout goes to


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument as one sentence, like every other error of this command. Flags are not abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message.rstrip('.')}{self._meant(message)}; see `{self.prog} --help`.")

    def _meant(self, message: str) -> str:
        """Returns which options the unknown ones resemble or begin (commands that take one mask have --mask, others --masks), and that of a
        file with a kernel."""
        _, is_unknown, words = message.partition("unrecognized arguments: ")
        typed = [word.partition("=")[0] for word in words.split() if word.startswith("--")] if is_unknown else []
        known = self._option_string_actions
        close = [flag for word in typed for flag in [f for f in known if f.startswith(word)] or get_close_matches(word, known, 1, 0.8)]
        if is_unknown and "--plugin" in known:
            close += [f"--plugin {word}" for word in words.split() if word.endswith(".py")]
        return f" (did you mean {', '.join(dict.fromkeys(close))}?)" if close else ""


def verbs() -> list[str]:
    return sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))


def verb_module(verb: str) -> Any:
    return import_module(f"{__name__}.{verb}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. User errors are one sentence on stderr."""
    _prepare_output()
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except LongcaError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("stopped.", INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:  # a file that the user named fails in an unexpected way, or the one that stdout goes to
        if error.filename is not None:
            return _fail(f"cannot use {short(str(error.filename), 80)}: {error.strerror}; give another file.", LongcaError.exit_code)
        if error.errno not in FULL:
            raise
        _discard_output()
        return _fail(f"cannot write the output: {error.strerror}; send it to another file.", LongcaError.exit_code)


def _prepare_output() -> None:
    """Makes stdout and stderr take every text: a closed one drops it, and one that is not UTF-8 escapes what it cannot hold."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif (stream.encoding or "utf-8").lower().replace("-", "") != "utf8" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Drops what is left in the buffer of stdout, or Python complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, code: int) -> int:
    with suppress(OSError):  # a full disk takes no message either
        print("\n".join(map(printable, f"longca: {sentence}".split("\n"))), file=sys.stderr)
    return code


def _dispatch(argv: list[str]) -> int:
    verb = argv[0] if argv else ""
    if verb and not verb.startswith("-"):
        if verb not in verbs():
            raise unknown("command", verb, verbs())
        module = verb_module(verb)
        parser = Parser(prog=f"longca {verb}", description=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(parser)
        parser.usage = " ".join(
            [parser.prog, *(_placeholder(action) for action in parser._actions if not action.option_strings), "[options]"]
        )
        if examples := getattr(module, "EXAMPLES", ()):
            parser.epilog = "\n  ".join(["examples:", *examples])
        command_line = shlex.join(["longca", *argv])  # for advice on how to continue
        args = parser.parse_args(argv[1:], argparse.Namespace(command_line=command_line))
        _refuse_empty(parser, args)
        return int(module.run(args)) if hasattr(module, "run") else _answer(verb, module, args)
    parser = Parser(prog="longca", description="Benchmarks attention kernels and context parallelism for long sequences.")
    parser.add_argument("--version", action="version", version=f"longca {__version__}")
    parser.usage = "longca [-h] [--version] COMMAND ..."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["commands:", *(f"  {name:<12}{verb_module(name).HELP}" for name in verbs())])
    parser.epilog += "\n\n`longca COMMAND --help` shows the options of a command."
    parser.parse_args(argv)
    parser.print_help()
    return 0


def _answer(verb: str, module: Any, args: argparse.Namespace) -> int:
    """Prints what the function of a verb returns."""
    found = call(getattr(longca, verb), args)
    show(found, getattr(args, "json", False), hasattr(module, "JSON_LINES"))
    return 0 if found.ok else getattr(module, "FAILED", 1)


def _placeholder(positional: argparse.Action) -> str:
    """Returns a positional argument as the usage line shows it."""
    name = str(positional.metavar or positional.dest)
    return f"[{name}]" if positional.nargs in ("?", "*") else f"{name}..." if positional.nargs == "+" else name


def _refuse_empty(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                refuse_empty(str(max(action.option_strings, key=len, default=action.metavar or action.dest)), text)

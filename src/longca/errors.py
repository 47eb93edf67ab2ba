"""The errors a user may see: each is one sentence that says what is wrong, with what value, and what to do."""

from difflib import get_close_matches

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "std::bad_alloc", "cudaerrormemoryallocation")

TYPO = 0.6  # the least likeness of a typo (difflib's): at less, fp8 resembles fp64


class LongcaError(Exception):
    """Something the user can mend; the command line prints it as one sentence."""

    exit_code = 2


class BadInput(LongcaError, ValueError):
    """A value, a file or a combination that makes no sense."""


class Refused(LongcaError):
    """A kernel, an encoding or a method says that it cannot do this, and why."""


class Unavailable(LongcaError):
    """A package or a device is missing; the sentence says what to install."""


class NoMemory(LongcaError, MemoryError):
    """A step of LongCA itself, not a kernel, finds no memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error says that there is no memory left on a device or on the host."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(words in text for words in OUT_OF_MEMORY)


def closest(name: str, known: list[str]) -> str:
    """The known name that this one may be a typo of; empty where none is so close."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=TYPO)), "")


def unknown(kind: str, name: str, known: list[str], listed: bool = False, command: str = "") -> BadInput:
    """The answer to a name nobody knows: what was meant, or what there is; both if `listed`. `command` lists all names."""
    close, names = closest(name, known), f"known are: {', '.join(known)}"
    hint = f"did you mean {close!r}{f' ({names})' if listed else ''}?" if close else f"{names}." if known else "there are none."
    return BadInput(f"unknown {kind} {name!r}; {hint}" + (f" `{command}` lists all." if command else ""))

"""Masks as expressions of others: `causal_document & sliding_window(w=512)`. The text is parsed as Python is, and never evaluated by it.

`-` binds more tightly than `&`, and `&` more than `|`; parentheses change that. A parameter in parentheses is fixed; others are those of
the expression, and each part that has one gets it. All parts see the same documents.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from longca import lengths
from longca.errors import BadInput, Refused
from longca.masks.blocks import ONLY_BANDS, BlockMask
from longca.masks.files import MaskFile
from longca.masks.mask import Mask
from longca.masks.pattern import Default, Lengths, Pattern, check_params, check_seqlen, refuse_documents
from longca.masks.random_blocks import BlockPattern
from longca.text import parse_size, short

LONGEST = 1000  # characters
MOST_SIGNS = 64  # as deep as its tree can be, which is walked by recursion
EXAMPLE = "causal_document & sliding_window(w=512)"
SIGNS: dict[type, Callable[[Any, Any], Any]] = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.Sub: operator.sub}
SIZE = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])\d+(?:\.\d+)?[KMGkmg]\b""")
Part = Pattern | BlockPattern | MaskFile
Make = Callable[..., Mask | BlockMask]


@dataclass(frozen=True)
class Leaf:
    """A mask in an expression, with the parameters that the expression fixes."""

    part: Part
    fixed: Mapping[str, float]

    @property
    def free(self) -> dict[str, Any]:
        return {name: default for name, default in self.part.defaults.items() if name not in self.fixed}


@dataclass(frozen=True)
class Expression:
    """A mask made of others, under its text in a standard form. Call it as any mask by name."""

    name: str
    tree: ast.expr
    leaves: Mapping[ast.expr, Leaf]
    group: str = "expression"

    @property
    def about(self) -> str:
        return f"made of {', '.join(leaf.part.name for leaf in self.leaves.values())}"

    @property
    def defaults(self) -> dict[str, Default]:
        """The parameters that the expression does not fix."""
        return {name: default for leaf in reversed([*self.leaves.values()]) for name, default in leaf.free.items()}

    @property
    def has_documents(self) -> bool:
        return any(leaf.part.has_documents for leaf in self.leaves.values())

    @property
    def own_lengths(self) -> Lengths | None:
        return next((leaf.part.own_lengths for leaf in self.leaves.values() if leaf.part.own_lengths), None)

    @property
    def blocks(self) -> Leaf | None:
        """The block pattern in it."""
        return next((leaf for leaf in self.leaves.values() if isinstance(leaf.part, BlockPattern)), None)

    def check(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters that no part has, or that the expression fixes."""
        check_params(self.name, params, list(self.defaults))

    def __call__(self, seqlen: int, **options: Any) -> Mask | BlockMask:
        return self.build(seqlen, lambda pattern, length, **given: pattern(length, **given), **options)

    def build(
        self,
        seqlen: int,
        make_blocks: Make,
        *,
        seed: int = 0,
        documents: Sequence[int] | None = None,
        distribution: lengths.Distribution | str | None = None,
        packing: str | None = None,
        **params: float,
    ) -> Mask | BlockMask:
        """The mask over `seqlen` tokens; `make_blocks(pattern, seqlen, seed=..., **params)` makes its block pattern."""
        seqlen = check_seqlen(seqlen)
        self.check(params)
        drawing = {"documents": documents, "distribution": distribution, "packing": packing}
        if not self.has_documents:
            refuse_documents(self.name, *drawing.values())
        made, shared = dict[ast.expr, Mask | BlockMask](), dict[str, Any](drawing)
        for node, leaf in sorted(self.leaves.items(), key=lambda entry: entry[1].part.own_lengths is None):  # their documents come first
            own: dict[str, Any] = {**{name: value for name, value in params.items() if name in leaf.free}, **leaf.fixed}
            if isinstance(leaf.part, BlockPattern):
                made[node] = make_blocks(leaf.part, seqlen, seed=seed, **own)
            else:
                made[node] = leaf.part(seqlen, seed=seed, **(shared if leaf.part.has_documents else {}), **own)
                if leaf.part.has_documents:
                    shared = {"documents": made[node].documents}
        return self._named(_evaluate(self.tree, made), made, seed, shared.get("documents"))

    def _named(
        self, mask: Mask | BlockMask, made: Mapping[ast.expr, Mask | BlockMask], seed: int, documents: Sequence[int] | None
    ) -> Mask | BlockMask:
        """The mask with its name and the parameters that are not fixed; one that two parts drew differently has the part's name before."""
        known: dict[str, Any] = {}
        for node, leaf in self.leaves.items():
            for name in filter(made[node].params.__contains__, leaf.free):
                value = made[node].params[name]
                known[name if known.get(name, value) == value else f"{leaf.part.name}.{name}"] = value
        mask.name, mask.params, mask.seed = self.name, known, seed
        if isinstance(mask, Mask):
            mask.documents = tuple(documents) if self.has_documents and documents is not None else None
        return mask


def parse(text: str, find: Callable[[str], Any]) -> Expression:
    """Returns the expression in a text; `find` returns a mask by its plain name, or by that of its file."""
    if len(text) > LONGEST:
        raise BadInput(f"an expression of masks has up to {LONGEST} characters, not {len(text)}.")
    try:
        tree = ast.parse(SIZE.sub(_plain_size, text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"the mask {short(text, 80)!r} cannot be read: {_reason(error)}; write it as {EXAMPLE!r}.") from error
    signs = sum(isinstance(node, ast.BinOp | ast.UnaryOp) for node in ast.walk(tree))
    if signs > MOST_SIGNS:
        raise BadInput(f"an expression of masks has up to {MOST_SIGNS} of the signs &, |, - and ~, not {signs}.")
    leaves = dict(_leaves(tree, text, find))
    if sum(isinstance(leaf.part, BlockPattern) for leaf in leaves.values()) > 1:
        raise Refused(f"{ONLY_BANDS}; {short(text, 80)!r} has two block patterns.")
    return Expression(ast.unparse(tree), tree, leaves)


def _reason(error: BaseException) -> str:
    return str(getattr(error, "msg", "") or "it is nested too deeply").rstrip(".")


def _plain_size(match: re.Match[str]) -> str:
    return match[0] if match[0][0] in "'\"" else str(parse_size(match[0]))


def _leaves(node: ast.expr, text: str, find: Callable[[str], Any]) -> Iterator[tuple[ast.expr, Leaf]]:
    """The masks in a tree, from left to right."""
    if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
        sides = [list(_leaves(side, text, find)) for side in (node.left, node.right)]
        if not isinstance(node.op, ast.BitAnd):
            _refuse_blocks([leaf for side in sides for leaf in side])
        yield from (leaf for side in sides for leaf in side)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        inside = list(_leaves(node.operand, text, find))
        _refuse_blocks(inside)
        yield from inside
    elif isinstance(node, ast.Name):
        yield node, Leaf(find(node.id), {})
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, Leaf(find(node.value), {})
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        part = find(node.func.id)
        node.keywords.sort(key=lambda entry: entry.arg or "")
        for one, other in pairwise(node.keywords):
            if one.arg == other.arg:
                raise BadInput(f"the mask {short(text, 80)!r} gives {one.arg} twice; give it once.")
        fixed = {str(entry.arg): _number(entry, text) for entry in node.keywords}
        part.check(fixed)
        yield node, Leaf(part, fixed)
    else:
        if isinstance(node, ast.Tuple):
            advice = f"give them one by one, or one that combines them, such as {EXAMPLE!r}"
            raise BadInput(f"{short(text, 80)!r} is several masks, and this takes one: {advice}.")
        wrong = short(ast.unparse(node), 40)
        raise BadInput(f"the mask {short(text, 80)!r} cannot be read: {wrong!r} is no mask; write it as {EXAMPLE!r}.")


def _refuse_blocks(leaves: Sequence[tuple[ast.expr, Leaf]]) -> None:
    if any(isinstance(leaf.part, BlockPattern) for _, leaf in leaves):
        raise Refused(f"{ONLY_BANDS}, not |, - or ~.")


def _number(entry: ast.keyword, text: str) -> float:
    try:
        value = ast.literal_eval(entry.value)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or entry.arg is None:
        raise BadInput(f"the mask {short(text, 80)!r} cannot be read: {entry.arg or '**'} must be a number, such as w=512.")
    return value


def _evaluate(node: ast.expr, made: Mapping[ast.expr, Mask | BlockMask]) -> Any:
    if isinstance(node, ast.BinOp):
        return SIGNS[type(node.op)](_evaluate(node.left, made), _evaluate(node.right, made))
    if isinstance(node, ast.UnaryOp):
        return ~_evaluate(node.operand, made)
    return made[node]

"""Reads public names and their docstrings from the source, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_PACKAGE = "doorstep"
_WRAPPERS = ("Call", "Steps")
"""Wrapper types in the annotations of the client's methods. Callers get the type inside the wrapper."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | Function | ast.Assign | ast.AnnAssign


@dataclass
class Field:
    """An attribute of a public name."""

    name: str
    type: str
    about: str


@dataclass
class Routine:
    """A function or a method, with all its overloads."""

    name: str
    about: str
    signatures: list[str] = field(default_factory=list)


@dataclass
class Thing:
    """A public name: a class, a function, or a value."""

    name: str
    about: str
    signatures: list[str]
    fields: list[Field] = field(default_factory=list)
    routines: list[Routine] = field(default_factory=list)

    def unsaid(self) -> Iterator[str]:
        """The names without a docstring: this name or names of its members."""
        if not self.about:
            yield self.name
        yield from (f"{self.name}.{routine.name}" for routine in self.routines if not routine.about)


def module_docstring(module: str) -> str:
    return _docstring(_tree(module))


def public_names(module: str) -> list[str]:
    """The names in `__all__` except `__version__`; without `__all__`, the classes that the module defines."""
    body = _tree(module).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def thing(module: str, name: str) -> Thing:
    """The object behind a name of a module, wherever it is defined."""
    home, node = _definition(module, name)
    if isinstance(node, ast.ClassDef):
        return _class(home, node)
    if isinstance(node, Function):
        return Thing(name, _docstring(node), [signature(node)])
    return Thing(name, _said_after(_tree(home).body, node), [ast.unparse(node)])


def _class(home: str, node: ast.ClassDef) -> Thing:
    """A class, including the members that it inherits from public base classes of this package."""
    found = Thing(node.name, _docstring(node), [])
    lineage = list(_lineage(home, node))
    for one in reversed(lineage):
        for routine in _routines(one):
            found.routines = [known for known in found.routines if known.name != routine.name] + [routine]
        known = {value.name for value in found.fields}
        found.fields += [value for value in _fields(one) if not (value.name in known or value.name.startswith("_"))]
    start = next((member for one in lineage for member in one.body if _is_start(member)), None)
    arguments = _arguments(start)[1:] if isinstance(start, Function) else []
    found.signatures = [_wrapped(f"class {node.name}", arguments, "") if arguments else f"class {node.name}"]
    return found


def _lineage(home: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    yield node
    for base in node.bases:
        name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        try:
            above, parent = _definition(home, name)
        except LookupError:
            continue  # a class of the standard library or of another package
        if isinstance(parent, ast.ClassDef):
            yield from _lineage(above, parent)


def _fields(node: ast.ClassDef) -> Iterator[Field]:
    """The fields of a class: declared in its body, enumeration members, or set in `__init__` with a docstring."""
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            yield Field(ast.unparse(member.target), ast.unparse(member.annotation), _said_after(node.body, member))
        elif isinstance(member, ast.Assign) and isinstance(member.value, ast.Constant):
            yield Field(ast.unparse(member.targets[0]), ast.unparse(member.value), _said_after(node.body, member))
        elif _is_start(member):
            yield from _attributes(member)


def _attributes(start: ast.stmt) -> Iterator[Field]:
    assert isinstance(start, Function)
    for line in start.body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and (about := _said_after(start.body, line)):
            target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
            yield Field(ast.unparse(target).removeprefix("self."), _kind(line), about)


def _kind(line: ast.Assign | ast.AnnAssign) -> str:
    """The annotation, the class that is called, or the type of a constant; otherwise empty."""
    if isinstance(line, ast.AnnAssign):
        return ast.unparse(line.annotation)
    if isinstance(line.value, ast.Constant):
        return type(line.value.value).__name__
    called = ast.unparse(line.value.func) if isinstance(line.value, ast.Call) else ""
    return called if called[:1].isupper() else ""


def _routines(node: ast.ClassDef) -> Iterator[Routine]:
    found: dict[str, Routine] = {}
    for member in node.body:
        if isinstance(member, Function) and not member.name.startswith("_"):
            routine = found.setdefault(member.name, Routine(member.name, ""))
            routine.about = _docstring(member) or routine.about
            overloaded = "overload" in _decorators(member)
            if overloaded or not routine.signatures:
                routine.signatures.append(signature(member, of=node.name))
        elif isinstance(member, ast.Assign) and ast.unparse(member.value).startswith("each_of("):
            name = ast.unparse(member.targets[0])
            listed = ast.unparse(member.value)[len("each_of(") : -1]
            about = f"All items, fetched page by page as they are needed. The arguments are those of `{listed}`."
            found[name] = Routine(name, about, [f"{name}(…)"])
    yield from found.values()


def signature(node: Function, of: str = "") -> str:
    """The signature as a caller sees it: without `self`, and for a property without parentheses."""
    result = _result(node)
    if "property" in _decorators(node):
        return f"{node.name}{f': {result}' if result else ''}"
    arguments = _arguments(node)
    bound = arguments[1:] if of and "staticmethod" not in _decorators(node) else arguments
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _wrapped(f"{word}{node.name}", bound, f" -> {result}" if result else "")


def _wrapped(head: str, arguments: list[str], tail: str) -> str:
    line = f"{head}({', '.join(arguments)}){tail}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{head}(", *(f"    {argument}," for argument in arguments), f"){tail}"])


def _result(node: Function) -> str:
    returns = node.returns
    if isinstance(returns, ast.Subscript) and ast.unparse(returns.value) in _WRAPPERS:
        returns = returns.slice
    return _type(returns) if returns is not None else ""


def _arguments(node: Function) -> list[str]:
    """One string per parameter, so that the signature can be wrapped."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    found = [_argument(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if given.vararg:
        found.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        found.append("*")
    found += [_argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is None:
        return found
    shared = _SHARED_KEYWORDS.get(ast.unparse(given.kwarg).partition(": ")[2])
    if shared is None:
        return [*found, f"**{_argument(given.kwarg, None)}"]
    return [*found, *([] if given.kwonlyargs else ["*"]), *_keywords(*shared)]


_SHARED_KEYWORDS = {
    "Unpack[Paging]": ("doorstep.client.call", "Paging"),
    "Unpack[BulkOptions]": ("doorstep.client.queues", "BulkOptions"),
    "Unpack[DeadLetterQuery]": ("doorstep.client.queues", "DeadLetterQuery"),
    "Unpack[EventQuery]": ("doorstep.client.events", "EventQuery"),
    "Unpack[ReplayOptions]": ("doorstep.client.endpoints", "ReplayOptions"),
    "Unpack[ReplayRange]": ("doorstep.client.endpoints", "ReplayRange"),
    "Unpack[RuleChanges]": ("doorstep.client.administration", "RuleChanges"),
    "Unpack[RetryQueueQuery]": ("doorstep.client.queues", "RetryQueueQuery"),
}
"""Keyword arguments that many methods share. The reference lists them in each signature."""


def _keywords(module: str, name: str) -> list[str]:
    """The fields of a TypedDict, then those of its bases, as keyword arguments."""
    where, node = _definition(module, name)
    assert isinstance(node, ast.ClassDef), name
    inherited = [
        one for base in node.bases if ast.unparse(base) != "TypedDict" for one in _keywords(where, ast.unparse(base))
    ]
    own = [_keyword(field) for field in node.body if isinstance(field, ast.AnnAssign)]
    return own + inherited


def _keyword(field: ast.AnnAssign) -> str:
    required = re.sub(r"\bRequired\[(.*)\]", r"\1", _type(field))
    return required if required != _type(field) else f"{required} = None"


def _type(annotation: ast.AST) -> str:
    """An annotation without the modules of its names, which readers do not need: `Receipt`, not `events.Receipt`."""
    return re.sub(r"\b[a-z_]+\.(?=[A-Z])", "", ast.unparse(annotation))


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return _type(argument) + (f" = {ast.unparse(default)}" if default is not None else "")


@cache
def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None, module
    return ast.parse(Path(spec.origin).read_text())


def _definition(module: str, name: str) -> tuple[str, Definition]:
    """Where a name is defined, following imports inside the package."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(_PACKAGE):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(str(node.module), alias.name)
    for top in _tree(module).body:
        if isinstance(top, Definition) and name in _named(top):
            return module, top
    raise LookupError(f"{module} does not define {name}")


def _named(node: Definition) -> list[str]:
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return [ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else node.name]


def _said_after(body: list[ast.stmt], node: ast.stmt) -> str:
    """The string below a value that documents it."""
    after = body[body.index(node) + 1 :][:1]
    if after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant):
        said = after[0].value.value
        return " ".join(said.split()) if isinstance(said, str) else ""
    return ""


def _docstring(node: ast.Module | ast.ClassDef | Function) -> str:
    """The docstring without the indentation of the surrounding code. Deeper indentation, in examples, is kept."""
    said = ast.get_docstring(node, clean=False) or ""
    margin = 0 if isinstance(node, ast.Module) else node.col_offset + 4
    return "\n".join(line[margin:] if line[:margin].isspace() else line for line in said.splitlines()).strip()


def _decorators(node: Function) -> list[str]:
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def _is_start(member: ast.stmt) -> bool:
    return isinstance(member, Function) and member.name == "__init__"

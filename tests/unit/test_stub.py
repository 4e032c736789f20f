"""The stub of the compiled module has the module's names and the names of their parameters."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import railshmem
from railshmem import _core

STUB = Path(railshmem.__file__).with_name("_core.pyi")
SPECIAL = ("__init__", "__len__", "__dlpack__", "__dlpack_device__")
# What Python implements of Bootstrap, and the buffer protocol: no functions of the module's own.
ONLY_IN_STUB = {"Bootstrap.allgather", "SymmetricMemory.__buffer__"}

# Of one parameter: name, only by keyword, has a default. "_" where the name is not for callers.
Parameter = tuple[str, bool, bool]


def stub_parameters(node: ast.FunctionDef) -> list[Parameter]:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    first_default = len(plain) - len(given.defaults)
    found: list[Parameter] = []
    for place, argument in enumerate(plain):
        name = argument.arg if argument in given.args or argument.arg == "self" else "_"
        found.append((name, False, place >= first_default))
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append((argument.arg, True, default is not None))
    return [parameter for parameter in found if parameter[0] != "self"]


def names_of_stub() -> dict[str, list[Parameter] | None]:
    """By name, "Class.method" in a class: the parameters of functions, None for all else."""
    body = ast.parse(STUB.read_text()).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    found: dict[str, list[Parameter] | None] = {}

    def collect(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if (
                getattr(node, "name", "").startswith("_")
                and getattr(node, "name", "") not in SPECIAL
            ):
                continue  # the package's own, or the stub's
            if isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = None if node.decorator_list else stub_parameters(node)
            elif isinstance(node, ast.Assign):
                found[prefix + ast.unparse(node.targets[0])] = None
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) != "TypeAlias":
                found[prefix + ast.unparse(node.target)] = None
            elif isinstance(node, ast.ClassDef):
                found[prefix + node.name] = None
                for base in (ast.unparse(base) for base in node.bases):
                    if base.startswith("_"):  # of the stub only
                        collect(classes[base].body, f"{prefix}{node.name}.")
                collect(node.body, f"{prefix}{node.name}.")

    collect(body, "")
    return {name: given for name, given in found.items() if name not in ONLY_IN_STUB}


def module_parameters(signature: str) -> list[Parameter]:
    """Of what pybind11 writes into a docstring's first line: name(a: type, *, b: type = 1)."""
    inner = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    while "[" in inner:  # commas inside of types
        inner = re.sub(r"\[[^\[\]]*\]", "", inner)
    found: list[Parameter] = []
    by_keyword = False
    for text in (part.strip() for part in inner.split(",") if part):
        name = text.split(":")[0]
        by_keyword = by_keyword or text == "*"
        if text != "*" and name != "self" and not name.startswith("**"):
            found.append((re.sub(r"^arg\d+$", "_", name), by_keyword, " = " in text))
    return found


def names_of_module() -> dict[str, list[Parameter] | None]:
    found: dict[str, list[Parameter] | None] = {}

    def collect(owner: Any, prefix: str) -> None:
        is_enum = hasattr(owner, "__members__")
        for name, value in vars(owner).items():
            signature = ((value.__doc__ or "").strip().splitlines() or [""])[0]
            if name.startswith("_") and name not in SPECIAL:
                continue
            if is_enum and name in ("__init__", "name", "value"):
                continue
            if name == "__init__" and not signature.startswith("__init__("):
                continue  # of a class that Python cannot make
            if inspect.isclass(value):
                found[prefix + name] = None
                collect(value, f"{prefix}{name}.")
            else:
                is_function = callable(value) and ") ->" in signature
                found[prefix + name] = module_parameters(signature) if is_function else None

    collect(_core, "")
    return found


def test_the_stub_has_the_names_and_parameters_of_the_module() -> None:
    stub, module = names_of_stub(), names_of_module()
    assert set(stub) == set(module)
    assert len(stub) > 200
    assert stub == module

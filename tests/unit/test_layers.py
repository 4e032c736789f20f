"""The shape of the tree: who may include whom, what files are called, how long they grow.

LAYERS is where the include direction is written down.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Folder -> the folders whose headers it may include, beside its own. The longest prefix counts.
LAYERS: dict[str, set[str]] = {
    "kernels": set(),
    "shmem/base": set(),
    "shmem/bootstrap": {"shmem/base"},
    "shmem/gpu": {"shmem/base"},
    "shmem/memory": {"kernels", "shmem/base", "shmem/bootstrap", "shmem/gpu"},
    "shmem/topology": {"kernels", "shmem/base", "shmem/bootstrap"},
}
LAYERS["shmem/nic"] = LAYERS["shmem/memory"] | {"shmem/memory", "shmem/topology"}
LAYERS["shmem/trace"] = {"kernels", "shmem/base", "shmem/bootstrap"}
LAYERS["shmem/transport"] = LAYERS["shmem/nic"] | {"shmem/nic", "shmem/trace"}
LAYERS["shmem/api"] = LAYERS["shmem/transport"] | {"shmem/transport"}
LAYERS["shmem/include"] = LAYERS["shmem/api"] | {"shmem/api"}
# The layers above the library see its operations, not its wires.
LAYERS["ep"] = LAYERS["io"] = {"kernels", "shmem/base", "shmem/topology", "shmem/api"}
LAYERS["python/bindings"] = {"kernels", "shmem", "ep", "io"}
# A program for other libraries, which stands beside the code that runs it.
LAYERS["python/railshmem/bench"] = set()
# What the library is compared with, without it.
LAYERS["benchmarks"] = set()
# Stands for a driver: it knows the driver's types, and what is launched on a GPU.
LAYERS["tests/gpu"] = {"kernels", "shmem/base", "shmem/gpu"}
# Programs as users write them: public headers, by their angled names.
LAYERS["examples"] = set()
LAYERS["tests/cpp"] = {"kernels", "shmem", "ep", "io"}
LAYERS["tests/stress"] = {"kernels", "shmem", "tests/cpp"}

# Device code is compiled by three compilers, one of them without a C++ library.
DEVICE_HEADERS = {"stdint.h", "stddef.h", "string.h"}
ONE_MACHINE_ONLY = re.compile(
    r"__CUDA|__HIP|__NVCC__|__AMDGCN|__SYCL|\b(cuda|hip)[A-Z_]\w*|__linux__|__x86_64__|__aarch64__|\basm\b"
    r"|\b__(shared|device|global)__\b|\b(threadIdx|blockIdx|blockDim|gridDim)\b|__builtin_nvvm"
)

# What the package may import at run time, beside the standard library and itself.
RUNTIME_PACKAGES = {"numpy", "mpi4py", "ml_dtypes", "click", "rich"}
OPTIONAL_PACKAGES = {"cuda", "matplotlib", "torch"}  # imported inside functions, or for types

CPP = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".c"}
LONGEST_FILE = 600
EMPTY_NAMES = {"util", "utils", "common", "helper", "helpers", "misc"}


def source_files(*suffixes: str) -> Iterator[Path]:
    """The tree's own files, relative to ROOT: no build folders, environments or caches."""
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = sorted(
            name
            for name in folders
            if (name == ".ci" or not name.startswith("."))
            and not name.endswith(".egg-info")
            and name != "__pycache__"
            and not (here == Path() and (name.startswith("build") or name == "dist"))
        )
        for name in files:
            linked = (Path(folder) / name).is_symlink()  # to a file that has a place of its own
            if name != ".git" and not linked and (not suffixes or Path(name).suffix in suffixes):
                yield here / name


def text_of(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def layer_of(file: str) -> str | None:
    fitting = [layer for layer in LAYERS if file.startswith(f"{layer}/")]
    return max(fitting, key=len, default=None)


def is_inside(file: str, folders: set[str]) -> bool:
    return any(file.startswith(f"{folder}/") for folder in folders)


def wrong_includes(file: str, text: str) -> list[str]:
    layer = layer_of(file)
    if layer is None:
        return [f"{file}: belongs to no layer"]
    wrong = []
    for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE):
        if layer == "tests/cpp" and "/" not in included:
            continue  # what several tests share lies beside them
        if not is_inside(included, LAYERS[layer] | {layer}):
            wrong.append(f"{file} ({layer}) includes {included}")
    return wrong


def code_of(text: str) -> str:
    """C++ without comments and strings."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)


def test_includes_point_down() -> None:
    files = list(source_files(*CPP))
    assert files
    wrong = [wrong for file in files for wrong in wrong_includes(file.as_posix(), text_of(file))]
    assert wrong == []


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("shmem/nic/nic.cpp", "shmem/transport/proxy/proxy.hpp"),
        ("shmem/base/error.cpp", "shmem/api/runtime.hpp"),
        ("shmem/topology/topology.cpp", "shmem/memory/heap.hpp"),
        ("kernels/shmem/put.hpp", "shmem/base/error.hpp"),
        ("ep/dispatch.cpp", "shmem/nic/nic.hpp"),
        ("ep/dispatch.cpp", "io/engine.hpp"),
        ("shmem/api/runtime.cpp", "tests/cpp/fake.hpp"),
        ("shmem/nic/nic.cpp", "nic.hpp"),  # not from the root: nobody can tell the layer
    ],
)
def test_an_include_that_points_up_is_found(file: str, included: str) -> None:
    assert wrong_includes(file, f'#include "{included}"\n')


def test_layers_have_no_cycle() -> None:
    order: list[str] = []
    left = dict(LAYERS)
    while left:
        ready = [layer for layer, below in left.items() if not below & set(left)]
        assert ready, f"these include each other: {sorted(left)}"
        order += ready
        left = {layer: below for layer, below in left.items() if layer not in ready}


def test_only_arch_knows_the_machine() -> None:
    wrong = []
    for file in source_files(*CPP):
        if file.parts[0] != "kernels" or file.parts[1] == "arch":
            continue
        text = text_of(file)
        for header in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE):
            if header not in DEVICE_HEADERS:
                wrong.append(f"{file} includes <{header}>")
        wrong += [f"{file}: {found.group()}" for found in ONE_MACHINE_ONLY.finditer(code_of(text))]
    assert wrong == []


def imports_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(module, line) of every import under the node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield ("." * node.level + module, node.lineno)


def is_for_typing(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:`, which is never run."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def test_the_package_imports_only_what_it_declares() -> None:
    allowed = RUNTIME_PACKAGES | set(sys.stdlib_module_names) | {"railshmem", "__future__"}
    wrong = []
    for file in source_files(".py"):
        if file.parts[:2] != ("python", "railshmem"):
            continue
        tree = ast.parse(text_of(file))
        late = {
            line
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_for_typing(node)
            for _, line in imports_of(node)
        }
        for module, line in imports_of(tree):
            package = module.partition(".")[0]
            if package not in allowed and not (package in OPTIONAL_PACKAGES and line in late):
                wrong.append(f"{file}:{line} imports {module}")
    assert wrong == []


def test_declared_and_checked_dependencies_are_the_same() -> None:
    text = text_of(Path("pyproject.toml"))
    declared = re.search(r"^dependencies = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    assert declared
    names = {re.split(r"[<>=! ]", name)[0] for name in re.findall(r'"([^"]+)"', declared.group(1))}
    assert names == RUNTIME_PACKAGES


def test_examples_and_benchmarks_use_the_public_package() -> None:
    wrong = [
        f"{file}:{line} imports {module}"
        for file in source_files(".py")
        if file.parts[0] in {"examples", "benchmarks"}
        for module, line in imports_of(ast.parse(text_of(file)))
        if re.fullmatch(r"railshmem(\.\w+)*\._\w+|tests(\..*)?", module)
    ]
    assert wrong == []


def test_names_say_something() -> None:
    wrong = [
        str(file)
        for file in source_files()
        if EMPTY_NAMES & {Path(part).stem.lower().strip("_") for part in file.parts}
    ]
    assert wrong == []


def test_files_stay_readable() -> None:
    lengths = {str(file): text_of(file).count("\n") for file in source_files(*CPP, ".py", ".sh")}
    too_long = {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE}
    assert too_long == {}


def test_no_text_names_a_place_outside_the_tree() -> None:
    forbidden = "/".join(["", "work", ""])
    wrong = [
        str(file)
        for file in source_files()
        if forbidden in (ROOT / file).read_text(encoding="utf-8", errors="ignore")
    ]
    assert wrong == []

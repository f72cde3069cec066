"""What a stranger installs: a wheel and a source distribution that are whole, and work anywhere."""

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def tracked(folder: str) -> set[str]:
    """The files of the repository in a folder."""
    done = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def build(source: Path, kind: str, folder: Path) -> Path:
    """Builds one distribution with the backend alone, which downloads nothing."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def stranger(wheel, tmp_path_factory):
    """An environment with the wheel, and with the dependencies that are installed here."""
    folder = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, *install], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Behind the environment's own packages; what is installed in place there is not followed.
    (packages / "known.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


def call(stranger: Path, folder: Path, *arguments: str) -> str:
    """A command in an empty folder, without anything of the repository on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(stranger / arguments[0]), *arguments[1:]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    return done.stdout


def test_the_version_is_in_one_place():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [PROJECT["version"]]
    written = [
        name
        for name in tracked("src")
        if name.endswith(".py") and PROJECT["version"] in (ROOT / name).read_text()
    ]
    assert written == []


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(file.read(about))
    assert names == {name.removeprefix("src/") for name in tracked("src")}
    assert {"iclflow/py.typed", "iclflow/papers/linear/studies/staircase.toml"} <= names
    assert metadata["Version"] == PROJECT["version"] and metadata["License-Expression"]
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    # No address that nobody has checked: an entry here needs a page that exists.
    assert metadata.get_all("Project-URL") is None


@pytest.mark.slow
def test_the_source_distribution_is_the_repository_and_makes_the_same_wheel(wheel, tmp_path):
    made = build(ROOT, "sdist", tmp_path / "made")
    with tarfile.open(made) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.name.startswith("iclflow-"))
    names = {str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()}
    # But for `docs/results`, a link to a folder of the package.
    files = {name for name in tracked(".") if not (ROOT / name).is_symlink()}
    assert names - {"PKG-INFO"} == files
    again = build(unpacked, "wheel", tmp_path / "again")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert set(first.namelist()) == set(second.namelist())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_works_in_an_empty_folder(stranger, tmp_path):
    program = "import iclflow; print(iclflow.__file__, iclflow.__version__)"
    where, version = call(stranger, tmp_path, "python", "-c", program).split()
    assert where.startswith(str(stranger.parent)) and version == PROJECT["version"]
    assert "linear/cascade" in call(stranger, tmp_path, "iclflow", "claims")
    call(stranger, tmp_path, "iclflow", "run", "linear/staircase")
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "manifest.json").is_file()
    call(stranger, tmp_path, "iclflow", "verify", "--tier", "smoke", "--json", "claims.json")
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert len(claims) > 20 and all(claim["verdict"] != "fails" for claim in claims)


@pytest.mark.slow
def test_the_explorer_of_the_wheel_answers(stranger, tmp_path):
    from urllib.request import urlopen

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(stranger / "iclflow"), "explore", "--port", "0", "--no-browser", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            with urlopen(address) as page:
                assert "iclflow" in page.read().decode()
        finally:
            server.terminate()

"""The container's image, built from the Containerfile by buildah, kept outside the repository until its sources change.

Without a registry the base is made here: Debian as mmdebstrap makes it. pip and apt get things as this machine does, by files
that are mounted for the build and are not in the image.
"""

import contextlib
import hashlib
import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

from tests.vm import cache
from tests.vm.apt import archive, network_options
from tests.vm.tools import run

TOP = Path(__file__).parents[2]
SUITE = "trixie"
_BASE = f"localhost/exhume-test-{SUITE}"


def unavailable() -> str:
    if os.geteuid() != 0:
        return "building an image needs root"
    missing = [tool for tool in ("buildah", "mmdebstrap", "runc") if shutil.which(tool) is None]
    return f"needs {', '.join(missing)} (Debian packages of the same names)" if missing else ""


def directory() -> Path:
    return cache.directory().parent / "exhume-container"


@contextlib.contextmanager
def root() -> Iterator[str]:
    """The image's root directory, mounted; built first where it is not there for these sources."""
    here = directory()
    here.mkdir(mode=0o700, parents=True, exist_ok=True)
    buildah = ["buildah", "--root", f"{here}/storage", "--runroot", f"{here}/run", "--storage-driver", "vfs"]
    name = f"localhost/exhume-test:{_digest()}"
    if not _there(buildah, name):
        _build(buildah, name, here)
    container = run([*buildah, "from", "--pull-never", name]).stdout.strip()
    try:
        yield run([*buildah, "mount", container], 300).stdout.strip()
    finally:
        run([*buildah, "umount", container], check=False)
        run([*buildah, "rm", container], 300, check=False)


def _digest() -> str:
    """Of what goes into it."""
    paths = [TOP / "deploy/container/Containerfile", TOP / "requirements/core.lock", *sorted((TOP / "src").rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _there(buildah: list[str], name: str) -> bool:
    return run([*buildah, "inspect", "--type", "image", name], check=False).returncode == 0


def _build(buildah: list[str], name: str, here: Path) -> None:
    if not _there(buildah, _BASE):
        _make_base(buildah, here)
    for old in run([*buildah, "images", "--quiet", "localhost/exhume-test"], check=False).stdout.split():
        run([*buildah, "rmi", "--force", old], 300, check=False)
    certificates = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or ""
    (here / "pip.conf").write_text("[global]\ncert = /run/certificates\n" if certificates else "[global]\n")
    volumes = ["--volume", f"{here}/pip.conf:/etc/pip.conf:ro"]
    volumes += ["--volume", f"{certificates}:/run/certificates:ro"] if certificates else []
    command = [*buildah, "bud", "--isolation", "chroot", "--pull-never", "--layers=false", "--build-arg", f"BASE={_BASE}"]
    run(["nice", "-n", "10", *command, *volumes, "-f", str(TOP / "deploy/container/Containerfile"), "-t", name, str(TOP)], 1200)


def _make_base(buildah: list[str], here: Path) -> None:
    sources = here / "sources.list"
    sources.write_text(archive().sources(SUITE).replace("arch=amd64 target=Packages", "arch=amd64"))
    options = [word for line in network_options() for word in ("--aptopt", line)]
    run(["nice", "-n", "10", "mmdebstrap", "--variant=minbase", *options, SUITE, f"{here}/base.tar", str(sources)], 900)
    container = run([*buildah, "from", "scratch"]).stdout.strip()
    try:
        run([*buildah, "add", "--quiet", container, f"{here}/base.tar", "/"], 300)
        run([*buildah, "commit", "--quiet", container, _BASE], 300)
    finally:
        run([*buildah, "rm", container], check=False)
        (here / "base.tar").unlink(missing_ok=True)

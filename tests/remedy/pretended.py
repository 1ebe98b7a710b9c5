"""What only a kernel has, pretended in a root directory."""

from pathlib import Path

import pytest

from exhume.remedy.steps import cgroups


def pretend_cgroups(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The memory hierarchy of cgroup v1 in a root without a kernel: directories that are taken for cgroups. Where they are."""
    memory = root / "sys/fs/cgroup/memory"
    memory.mkdir(parents=True)
    (memory / "memory.usage_in_bytes").touch()
    monkeypatch.setattr(cgroups, "is_cgroup", lambda fd: True)
    return memory

"""Why the kernel says no: which capability, switch, namespace or filter keeps this process from using BPF."""

import os

# include/uapi/linux/capability.h
_SYS_ADMIN, _PERFMON, _BPF = 21, 38, 39


def reason(root: str = "/") -> str:
    """The likeliest reason for EPERM, in words."""
    status = dict(line.split(":", 1) for line in _read(root, "proc/self/status").splitlines() if ":" in line)
    try:
        capabilities = int(status.get("CapEff", "0"), 16)
    except ValueError:
        capabilities = 0
    missing = [name for name, bit in (("CAP_BPF", _BPF), ("CAP_PERFMON", _PERFMON)) if not capabilities >> bit & 1]
    if missing and not capabilities >> _SYS_ADMIN & 1:
        switch = _read(root, "proc/sys/kernel/unprivileged_bpf_disabled").strip()
        closed = f"; kernel.unprivileged_bpf_disabled is {switch}" if switch not in ("", "0") else ""
        return f"it takes CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN; this process lacks {' and '.join(missing)}{closed}"
    if confidential(root):
        return "the kernel is locked down (lockdown=confidentiality), no program may read its memory"
    if _read(root, "proc/self/uid_map").split() not in (["0", "0", "4294967295"], []):
        return "this process is root only in its user namespace; it takes the capabilities of the node's own"
    if status.get("Seccomp", "0").strip() == "2":
        return "a seccomp filter (of the container's runtime, likely) forbids it"
    return "the capabilities are there, so a security module, or locked memory (ulimit -l) on an old kernel, forbids it"


def confidential(root: str = "/") -> bool:
    """Whether lockdown forbids programs to read kernel memory (LOCKDOWN_BPF_READ_KERNEL in security/security.c)."""
    return "[confidentiality]" in _read(root, "sys/kernel/security/lockdown")


def _read(root: str, name: str) -> str:
    try:
        with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""

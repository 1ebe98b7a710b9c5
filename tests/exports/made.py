"""What exporters are given in tests."""

from exhume.exports.subject import Subject
from tests.render.made import BEGIN, HZ, NODE, REAL, SECOND, Ran, idle

SUBJECT = Subject(NODE, HZ, "cpu-clock", BEGIN, BEGIN + 10 * SECOND, REAL)

ROWS = (
    Ran(3, "kubelet", "kubelet:main k:read k:mem_cgroup_nr_lru_pages", 300, "system", 4242, "/system.slice/kubelet.service"),
    Ran(2, "kubelet", "kubelet:main k:read k:mem_cgroup_nr_lru_pages", 20, "system", 4242, "/system.slice/kubelet.service"),
    Ran(1, "sshd", "sshd:main", 80, "user", 77),
    Ran(1, "python", "python:main j:loop", 7, "user", 78),
    idle(0, 500),
    idle(1, 40),
)
TOTAL = 947

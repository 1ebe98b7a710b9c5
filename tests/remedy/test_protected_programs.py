"""What a unit runs indirectly: by a script, a variable, an interpreter, a copy, a supervisor. In doubt it is left alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError, Refused
from exhume.remedy.plan_unit import KEEPS
from tests.examples import examples
from tests.remedy.test_protected import Made, planned, root

FIRM, DOUBT = "--force does not lift this", "may be one of those without which the node is lost; --force"
BINARY = "\x7fELF" + "k" * 5000


def service(line: str, *more: str) -> str:
    return "\n".join(("[Service]", f"ExecStart={line}", *more, ""))


def built(made: Made, text: str, files: dict[str, str]) -> Made:
    for path, content in {"/usr/bin/kubelet": BINARY, "/opt/agent": "\x7fELF agent", **files}.items():
        directory, _, name = path[1:].rpartition("/")
        made.unit(name, content, directory)
    return made.unit("node-agent.service", text)


SH = "#!/bin/sh\n"
WAYS: dict[str, tuple[str, dict[str, str], str]] = {
    # the review's ten
    "script": (service("/opt/run.sh"), {"/opt/run.sh": f'{SH}exec /usr/bin/kubelet "$@"\n'}, FIRM),
    "env": (service("/usr/bin/env $BIN", "Environment=BIN=/usr/bin/kubelet"), {}, FIRM),
    "shell variable": (service("/bin/sh -c 'exec $BIN'", "Environment=BIN=/usr/bin/kubelet"), {}, FIRM),
    "python text": (service('/usr/bin/python3 -c \'import os; os.execv("/usr/bin/kubelet", ["x"])\''), {}, DOUBT),
    "copy": (service("/opt/node"), {"/opt/node": BINARY}, FIRM),
    "podman": (service("/usr/bin/podman run --rm quay.io/x/hyperkube:v1 kubelet --x"), {}, DOUBT),
    "pre": (service("/bin/true", "Type=forking", "ExecStartPre=/usr/bin/kubelet"), {}, FIRM),
    "strace": (service("/usr/bin/strace -f -o /tmp/x /usr/bin/kubelet"), {}, FIRM),
    "wrapper": (service("/usr/lib/coreos/kubelet-wrapper"), {}, FIRM),
    "supervisord": (service("/usr/bin/supervisord -n"), {}, DOUBT),
    # and others of their kind
    "env file": (
        service("/usr/bin/env ${BIN} --x", "EnvironmentFile=-/etc/default/n"),
        {"/etc/default/n": "BIN='/usr/bin/kubelet'\n"},
        FIRM,
    ),
    "unknown variable": (service("/usr/bin/env $BIN"), {}, DOUBT),
    "unknown in a shell": (service("/bin/sh -c 'exec $$BIN'"), {}, DOUBT),
    "set in the shell": (service("/bin/bash -c 'B=/usr/bin/kubelet; exec $$B --x'"), {}, FIRM),
    "a default": (service("/bin/sh -c 'exec $${BIN:-/usr/bin/kubelet}'"), {}, FIRM),
    "arguments": (service("/opt/run.sh kubelet --x"), {"/opt/run.sh": f'{SH}set -e\nexec "$@"\n'}, FIRM),
    "first argument": (service("/opt/run.sh kubelet"), {"/opt/run.sh": f"{SH}exec $1\n"}, FIRM),
    "script of a script": (
        service("/opt/a"),
        {"/opt/a": f"{SH}# don't\n/opt/b &\nwait\n", "/opt/b": "#!/usr/bin/env bash\nnice -n 5 kubelet\n"},
        FIRM,
    ),
    "sourced": (
        service("/opt/a"),
        {"/opt/a": f"{SH}. /etc/default/n\nexec $BIN\n", "/etc/default/n": "BIN=/usr/bin/kubelet\n"},
        FIRM,
    ),
    "script by a shell": (service("/bin/bash -e /opt/a.sh"), {"/opt/a.sh": "cd /\nexec \\\n  kubelet\n"}, FIRM),
    "script by name": (service("run-node"), {"/usr/local/bin/run-node": f"{SH}kubelet\n"}, FIRM),
    "unknown in a script": (service("/opt/a"), {"/opt/a": f"{SH}BIN=$(which node)\nexec $BIN\n"}, DOUBT),
    "command substitution": (service("/opt/a"), {"/opt/a": f'{SH}exec "$(cat /etc/bin)"\n'}, DOUBT),
    "named in a script": (service("/opt/a"), {"/opt/a": f"{SH}x=kubelet\nsystemctl start $x\n"}, DOUBT),
    "open quote": (service("/opt/a"), {"/opt/a": f"{SH}echo it's\nexec kubelet\n"}, FIRM),
    "python file": (
        service("/opt/a.py"),
        {"/opt/a.py": "#!/usr/bin/python3\nimport os\nos.execv('/usr/bin/kubelet', ['x'])\n"},
        DOUBT,
    ),
    "python with a file": (service("/usr/bin/python3.11 -u /opt/a.py"), {"/opt/a.py": "run('kubelet')\n"}, DOUBT),
    "perl text": (service("/usr/bin/perl -e 'exec join q(), q(kube), q(let)'"), {}, DOUBT),
    "a large script": (service("/opt/a"), {"/opt/a": SH + "true\n" * 60_000}, DOUBT),
    "interpreter line": (service("/opt/a"), {"/opt/a": "#!/usr/bin/kubelet\nx\n"}, FIRM),
    "loader": (service("/lib64/ld-linux-x86-64.so.2 --library-path /x /usr/bin/kubelet"), {}, FIRM),
    "gdb": (service("/usr/bin/gdb -batch --args /usr/bin/kubelet"), {}, FIRM),
    "perf": (service("/usr/bin/perf record -o /x -- /usr/bin/kubelet"), {}, FIRM),
    "start-stop-daemon": (service("/sbin/start-stop-daemon --start --exec /usr/bin/kubelet"), {}, FIRM),
    "chpst": (service("/usr/bin/chpst -u root kubelet"), {}, FIRM),
    "xargs": (service("/usr/bin/xargs -n 1 kubelet"), {}, FIRM),
    "runsvdir": (service("/usr/bin/runsvdir /etc/service"), {}, DOUBT),
    "docker image": (service("/usr/bin/docker run registry:5000/x/kubelet:v1.30"), {}, DOUBT),
    "docker unknown": (service("/usr/bin/docker run $IMAGE"), {}, DOUBT),
    "nspawn": (service("/usr/bin/systemd-nspawn -D /srv/k /usr/bin/kubelet"), {}, DOUBT),
    "post": (service("/bin/true", "ExecStartPost=/bin/sh -c 'kubelet &'"), {}, FIRM),
    "starter": (service("/opt/start-kubelet.sh"), {}, FIRM),
    "own root": (service("/run.sh", "RootDirectory=/srv/k"), {}, DOUBT),
    "perl text in the option": (service('/usr/bin/perl "-eexec q(kubelet)"'), {}, DOUBT),
    "python text in the option": (service('/usr/bin/python3 -u "-cimport os" x'), {}, DOUBT),
    "node text in the option": (service("/usr/bin/node --eval=run() x"), {}, DOUBT),
    "python by its input": (service("/usr/bin/python3 -", "StandardInput=file:/opt/a"), {}, DOUBT),
    "shell by its input": (service("/bin/sh", "StandardInput=file:/opt/a"), {}, DOUBT),
    "shell by its input in a script": (service("/opt/a"), {"/opt/a": f"{SH}cat /opt/b | sh -s\n"}, DOUBT),
    "flock with a text": (service("/usr/bin/flock -n /run/x -c 'kubelet --v=2'"), {}, FIRM),
    "watch with a text": (service("/usr/bin/watch 'kubelet --v=2'"), {}, FIRM),
    "the name that it is called by": (service("@/opt/agent kubelet --x"), {}, FIRM),
    "snap": (service("/usr/bin/snap run microk8s.daemon-kubelite"), {}, DOUBT),
    "flatpak": (service("/usr/bin/flatpak run --command=kubelet org.x.Node"), {}, DOUBT),
    "tmux": (service("/usr/bin/tmux new-session -d kubelet"), {}, DOUBT),
    "awk": (service("/usr/bin/awk 'BEGIN { system(\"kubelet\") }'"), {}, DOUBT),
    "find": (service("/usr/bin/find / -maxdepth 0 -exec /usr/bin/kubelet {} ;"), {}, DOUBT),
    "another launcher": (service("/opt/agent -prefix x /usr/bin/kubelet --v=2"), {}, DOUBT),
    "after two dashes": (service("/opt/agent exec kube -- kubelet"), {}, DOUBT),
    "a command as text": (service("/opt/agent --command 'kubelet --v=2'"), {}, DOUBT),
    "working directory": (service("/bin/sh run.sh", "WorkingDirectory=/opt"), {"/opt/run.sh": f"{SH}exec kubelet\n"}, FIRM),
    "search path": (service("node", "ExecSearchPath=/opt/k"), {"/opt/k/node": f"{SH}exec kubelet\n"}, FIRM),
    "env file in two lines": (
        service("/usr/bin/env $BIN", "EnvironmentFile=/etc/default/n"),
        {"/etc/default/n": "BIN=/usr/bin/kube\\\nlet\n"},
        FIRM,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_runs_a_protected_program_indirectly_or_may_is_left_alone(way: str) -> None:
    text, files, how = WAYS[way]
    with root() as made:
        built(made, text, files)
        for keep in (None, *KEEPS):
            with pytest.raises(Refused) as refused:
                planned(made, "node-agent.service", keep, force=False)
            assert how in str(refused.value)
        if how == FIRM:
            with pytest.raises(Refused, match=how):
                planned(made, "node-agent.service")
        else:
            assert planned(made, "node-agent.service").steps


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (service("/opt/agent run"), {}),
        (service("/opt/gone"), {}),
        (service("/opt/run.sh"), {"/opt/run.sh": f'{SH}set -eu\n# waits for kubelet\ncd /opt\nexec /opt/agent "$@" 2>&1\n'}),
        (service("/opt/run.sh"), {"/opt/run.sh": f'{SH}D=/opt\nexec "$D/agent" --root /var/lib/kubelet\n'}),
        (service("/opt/run.sh"), {"/opt/run.sh": f'{SH}exec "$HOME/bin/agent"\n'}),
        (service("/usr/bin/env PATH=/x /opt/agent", "Environment=A=b"), {}),
        (service("/usr/bin/python3 /opt/a.py --kubelet x"), {"/opt/a.py": "import subprocess\nsubprocess.run(['df'])\n"}),
        (service("/usr/bin/python3 -m agent"), {}),
        (service("/usr/bin/java -jar /opt/agent.jar"), {}),
        (service("/usr/bin/docker run --rm -v /var/lib/kubelet:/var/lib/kubelet:ro -e X=kubelet datadog/agent:7"), {}),
        (service("/usr/bin/strace -f -p 4711 -o /tmp/kubelet"), {}),
        (service("/bin/sh -c 'cat /x/$$(($$$$ %% 7)) > /dev/null; exit 1'"), {}),
        (service("/bin/sh -c 'test -f /x && exec /opt/agent $ARGS'"), {}),
        (service("/opt/other"), {"/opt/other": "\x7fELF" + "o" * 5000}),
        (service("/usr/bin/systemd-run --scope /opt/agent"), {}),
        (service("/usr/libexec/amazon-ecs-init start", "ExecStartPre=/usr/libexec/amazon-ecs-init pre-start"), {}),
        (service("/opt/agent --kubelet /usr/bin/kubelet --watch kubelet exec kubelet"), {}),
        (service("/bin/sh ./run.sh", "WorkingDirectory=/opt"), {"/opt/run.sh": f"{SH}exec /opt/agent\n"}),
        (service("/opt/run.sh"), {"/opt/run.sh": f"{SH}systemctl -q is-active kubelet || pgrep kubelet\nexec /opt/agent\n"}),
        (service("/opt/kubelet-exporter", "EnvironmentFile=/etc/default/gone"), {}),
    ],
)
def test_an_agent_that_runs_nothing_protected_is_a_target(text: str, files: dict[str, str]) -> None:
    with root() as made:
        assert planned(built(made, text, files), "node-agent.service", force=False).steps


WORDS = st.sampled_from(
    [
        *(
            "sh",
            "-c",
            "exec",
            "$X",
            "${X}",
            "$(",
            ")",
            "`",
            "'",
            '"',
            ";",
            "&&",
            "\\",
            "<<E",
            "E",
            "\n",
            "#",
            "if",
            "then",
            "A=b",
        ),
        *("/opt/a", "kubelet", "env", "python3", "docker", "run", "$@", ".", "source", "/etc/x", "\0", "é"),
    ]
)


@settings(max_examples=examples(150))
@given(st.lists(WORDS, max_size=12).map(" ".join), st.lists(WORDS, max_size=20).map(" ".join))
def test_any_line_and_any_script_has_an_answer(line: str, script: str) -> None:
    with root() as made:
        built(made, service(f"/opt/a {line}".replace("\n", " ")), {"/opt/a": SH + script, "/etc/x": script})
        try:
            planned(made, "node-agent.service", force=False)
        except ExhumeError as why:
            assert "node-agent.service" in str(why)  # noqa: PT017


def test_a_script_that_runs_itself_is_read_once() -> None:
    with root() as made:
        built(made, service("/opt/a"), {"/opt/a": f"{SH}/opt/b\n. /opt/a\n", "/opt/b": f"{SH}/opt/a\n. /opt/b\n"})
        assert planned(made, "node-agent.service", force=False).steps

"""One API server for all tests of this directory; each test makes nodes of its own."""

from collections.abc import Iterator

import pytest

from tests.cluster import servers


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def kubelets(cluster: servers.Cluster) -> Iterator[servers.Cluster]:
    with servers.kubelets(cluster):
        yield cluster

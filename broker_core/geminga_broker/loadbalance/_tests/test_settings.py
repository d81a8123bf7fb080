"""The keys of load balancing."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_broker.config import load_config
from geminga_broker.loadbalance.model import Weights
from geminga_broker.loadbalance.settings import (
    AVERAGE_SHEDDER,
    MODULAR,
    THRESHOLD_SHEDDER,
    LoadBalanceConfig,
)
from geminga_runtime.settings import ConfigError


def test_defaults_are_apaches() -> None:
    config = load_config(None, {}).load_balance
    assert config == LoadBalanceConfig()
    assert config.load_manager == MODULAR
    assert config.shedding_strategy == THRESHOLD_SHEDDER
    assert (config.overloaded, config.threshold, config.grace_s) == (0.85, 0.1, 1800.0)
    assert config.weights == Weights(1.0, 0.0, 0.0, 1.0, 1.0)
    assert config.supported_splits == (
        "range_equally_divide",
        "topic_count_equally_divide",
        "specified_positions_divide",
        "flow_or_qps_equally_divide",
    )


def test_keys_are_read(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "loadBalancerSheddingEnabled=false\n"
        "loadBalancerMemoryResourceWeight=0.5\n"
        "loadBalancerBrokerThresholdShedderPercentage=15\n"
        "supportedNamespaceBundleSplitAlgorithms=range_equally_divide, topic_count_equally_divide\n"
    )
    config = load_config(file, {}).load_balance
    assert not config.shedding
    assert config.weights.memory == 0.5
    assert config.threshold == 0.15
    assert config.supported_splits == ("range_equally_divide", "topic_count_equally_divide")
    assert config.weights is config.weights


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"loadManagerClassName": "x.Unknown"}, "loadManagerClassName in test: 'x.Unknown'"),
        ({"loadBalancerLoadSheddingStrategy": "x"}, "loadBalancerLoadSheddingStrategy in test"),
        ({"loadBalancerLoadPlacementStrategy": "x"}, "loadBalancerLoadPlacementStrategy in test"),
        ({"loadBalancerPlacementStrategy": "x"}, "loadBalancerPlacementStrategy in test"),
        ({"defaultNamespaceBundleSplitAlgorithm": "x"}, "defaultNamespaceBundleSplitAlgorithm in"),
        ({"supportedNamespaceBundleSplitAlgorithms": "x"}, "'x' is none of range_equally_divide"),
        ({"loadBalancerHistoryResourcePercentage": "1.5"}, "it must be from 0 to 1"),
        (
            {"loadBalancerLoadPlacementStrategy": AVERAGE_SHEDDER},
            "may be AvgShedder only if loadBalancerLoadSheddingStrategy is",
        ),
    ],
)
def test_unknown_names_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_config(None, {}, given, overrides_from="test")


def test_average_shedder_may_do_both() -> None:
    both = {
        "loadBalancerLoadPlacementStrategy": AVERAGE_SHEDDER,
        "loadBalancerLoadSheddingStrategy": AVERAGE_SHEDDER,
    }
    assert load_config(None, {}, both).load_balance.placement_strategy == AVERAGE_SHEDDER

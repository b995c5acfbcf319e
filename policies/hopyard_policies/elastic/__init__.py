"""Elastic jobs: jobs that train on a number of slots that the policy changes while they train."""

from hopyard_policies.elastic.elastic import Elastic
from hopyard_policies.elastic.policy import ElasticPolicy
from hopyard_policies.elastic.scaling import Scaling

__all__ = ["Elastic", "ElasticPolicy", "Scaling"]

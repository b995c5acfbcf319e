"""Jobs that train on a changing number of slots."""

from hopyard_policies.elastic.elastic import Elastic
from hopyard_policies.elastic.policy import ElasticPolicy
from hopyard_policies.elastic.scaling import Scaling

__all__ = ["Elastic", "ElasticPolicy", "Scaling"]

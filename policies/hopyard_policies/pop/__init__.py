"""POP (HyperDrive, section 3): divides slots between jobs by their predicted probabilities of reaching the target."""

from hopyard_policies.pop.expected_remaining_time import Outlook, epochs_left, outlook_of
from hopyard_policies.pop.policy import PopPolicy
from hopyard_policies.pop.slots import SlotDivision, divide

__all__ = ["Outlook", "PopPolicy", "SlotDivision", "divide", "epochs_left", "outlook_of"]

"""What a user's closed form gives for the asking: a base policy by search, a shield by least change, constants from
data."""

from trident.closed_form.least_change import least_change_shield as least_change_shield
from trident.closed_form.search import search_base_policy as search_base_policy

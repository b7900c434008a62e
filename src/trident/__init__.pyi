from trident.api import Run as Run
from trident.api import load as load
from trident.api import resume as resume
from trident.api import train as train
from trident.envs.checks import check_env as check_env
from trident.errors import TridentError as TridentError
from trident.training.registry import make_env as make_env

__version__: str

"""Authentication and authorisation of calls: tokens, the folder that stores them, tickets for nodes, and the table of permissions.

Every call carries a token, on Unix sockets and within a process too. `AccessControl` finds the caller by the token, and decides with
the table `PERMISSIONS` whether this kind of caller may call the method. Handlers read the caller from `current_principal`.
"""

from hopyard._net.auth.access_control import AccessControl, Authenticator
from hopyard._net.auth.credentials import find_token
from hopyard._net.auth.principal import CallerKind, Principal, current_principal
from hopyard._net.auth.secrets_folder import SecretsFolder
from hopyard._net.auth.tokens import Token, TokenAuthenticator, new_token

__all__ = [
    "AccessControl",
    "Authenticator",
    "CallerKind",
    "Principal",
    "SecretsFolder",
    "Token",
    "TokenAuthenticator",
    "current_principal",
    "find_token",
    "new_token",
]

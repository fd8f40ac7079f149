"""Auth: adds a kept login to the requests of a connection, and refreshes it.

The SDK's own client holds a lock while each request waits for its answer, which would keep a cancellation from the
server; and it forgets when a token ends. So only its login is used (`flow.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from msgspec.structs import replace

from lmagent.core.errors import LmagentError
from lmagent.mcp.login import kept as store
from lmagent.mcp.login.flow import Flow, Kept, ends_at
from lmagent.mcp.login.kept import KeptLogin, Learn
from lmagent.mcp.login.requests import answer_of
from lmagent.mcp.spec import ServerSpec

REFRESH_SECONDS = 20.0
REVOKE_SECONDS = 5.0


class KeptAuth(httpx2.Auth):
    """Adds the token; refreshes one that has ended or is refused, and repeats the request once."""

    def __init__(self, spec: ServerSpec, data: Path, kept: KeptLogin, learn: Learn) -> None:
        self._spec = spec
        self._data = data
        self._kept = kept
        self._learn = learn

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if not self._kept.is_fresh:
            await self._renew()
        used = self._put(request)
        response = yield request
        if response.status_code == 401:
            await self._renew(refused=used)
            if self._kept.access_token not in ("", used):
                self._put(request)
                yield request
        elif response.status_code == 403:
            await self._note_scope(response)

    def _put(self, request: httpx2.Request) -> str:
        if token := self._kept.access_token:
            self._learn(self._kept.secrets)
            request.headers["Authorization"] = f"Bearer {token}"
        return token

    async def _renew(self, refused: str = "") -> None:
        """Take over what another process has refreshed, or refresh; the old token stays if neither is possible."""
        try:
            async with store.alone(self._data, self._spec):
                # Without a file, the user has logged out since.
                self._kept = store.load(self._data, self._spec) or KeptLogin(self._spec.url)
                if self._kept.is_fresh and self._kept.access_token != refused:
                    return
                # A refresh token may be used once: a cancelled call must not lose the answer.
                with anyio.move_on_after(REFRESH_SECONDS, shield=True):
                    if (fresh := await _renewed(self._spec, self._kept)) is not None:
                        self._kept = fresh
                        store.save(self._data, self._spec, fresh)
        except LmagentError:
            return  # the server's answer decides: 401 makes its state `login`

    async def _note_scope(self, response: httpx2.Response) -> None:
        """Keep the scopes that a request lacked, for the next login."""
        if extract_field_from_www_auth(response, "error") != "insufficient_scope":
            return
        try:
            async with store.alone(self._data, self._spec):
                # Another process may have renewed the login, or the user may have logged out.
                if (kept := store.load(self._data, self._spec)) is None:
                    return
                scope = union_scopes(kept.wanted or kept.scope, extract_scope_from_www_auth(response))
                if scope and scope != kept.wanted:
                    store.save(self._data, self._spec, replace(kept, wanted=scope))
        except LmagentError:
            return  # the next login asks for what the server names then


async def _renewed(spec: ServerSpec, kept: KeptLogin) -> KeptLogin | None:
    """Return a login with a new token, or without one that was given up; None if no answer came.

    Raises LoginNeeded: a client that logs in by itself was refused.
    """
    if spec.oauth.grant == "client_credentials":
        return await Flow(spec, lambda _text: None, None, None, kept.wanted).run()
    if not kept.refresh_token or not kept.token_endpoint:
        return None
    try:
        response = await _refresh(spec, kept)
        if response.status_code in (400, 401):
            return replace(kept, access_token="", refresh_token="")
        if response.status_code != 200:
            return None
        token = OAuthToken.model_validate_json(response.content)
    except (httpx2.HTTPError, OAuthFlowError, ValueError, OverflowError):
        return None
    return replace(
        kept,
        access_token=token.access_token,
        refresh_token=token.refresh_token or kept.refresh_token,
        expires=ends_at(token),
        scope=token.scope or kept.scope,
    )


async def revoke(spec: ServerSpec, kept: KeptLogin) -> str:
    """Have the authorization server end a login's tokens (RFC 7009). Return why they may still hold; empty if not."""
    tokens = {"refresh_token": kept.refresh_token, "access_token": kept.access_token}
    try:
        with anyio.fail_after(REVOKE_SECONDS):
            await Flow(spec, lambda _text: None, None, None, "").check_address(kept.revocation_endpoint)
            for kind, token in tokens.items():
                if token:
                    form = {"token": token, "token_type_hint": kind}
                    answered = (await _signed(spec, kept, kept.revocation_endpoint, form)).status_code
                    if answered != 200:
                        return f"the authorization server answered {answered}"
    except TimeoutError:
        return "the authorization server did not answer"
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return f"no connection: {type(error).__name__}"
    except (OAuthFlowError, ValueError) as error:
        return str(error).partition("\n")[0]
    return ""


async def _refresh(spec: ServerSpec, kept: KeptLogin) -> httpx2.Response:
    form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token}
    if kept.resource:
        form["resource"] = kept.resource
    return await _signed(spec, kept, kept.token_endpoint, form)


async def _signed(spec: ServerSpec, kept: KeptLogin, address: str, form: dict[str, str]) -> httpx2.Response:
    """Send a form to the authorization server as the login's client. Raises HTTPError, OAuthFlowError, ValueError."""
    client = OAuthClientInformationFull.model_validate(kept.client)
    context = OAuthContext(spec.url, OAuthClientMetadata(redirect_uris=None), Kept(client), None, None)
    context.client_info = client
    form, headers = context.prepare_token_auth({**form, "client_id": client.client_id or ""}, {})
    async with httpx2.AsyncClient(timeout=REFRESH_SECONDS) as http:
        return await answer_of(http, httpx2.Request("POST", address, data=form, headers=headers))

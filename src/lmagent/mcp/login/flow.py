"""Flow: one login, by the SDK's client for OAuth, in a browser or with a code on another device (RFC 8628).

The SDK's client is a generator of requests. `Flow` sends them itself: it sees the metadata, bounds what servers send,
and repeats the request for a token until the user has confirmed a device.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import AsyncGenerator
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    is_valid_client_metadata_url,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from msgspec import Struct
from pydantic import AnyUrl, ValidationError

from lmagent.core.decoding import decode_json
from lmagent.core.errors import LmagentError
from lmagent.mcp.login.kept import KeptLogin, LoginNeeded
from lmagent.mcp.login.loopback import Receiver, Redirect, listening, parse_redirect
from lmagent.mcp.oauth import LoginStep, OpenBrowser, Pasted, Say, Show
from lmagent.mcp.spec import ServerSpec
from lmagent.tools.sanitize import one_line

SECONDS = 300.0
"""How long a login may take."""

REQUEST_SECONDS = 20.0
LONGEST = 1_000_000
"""Bytes of an answer of an authorization server."""

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"

_BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "lmagent", "version": "login"},
    },
}

logging.getLogger("mcp").addHandler(logging.NullHandler())  # it logs answers of servers
logging.getLogger("mcp").propagate = False


class Kept:
    """The SDK's storage, for the time of a login."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class DeviceAnswer(Struct):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    interval: float = 5.0


class Flow:
    """A login to a server; `run` performs it."""

    def __init__(
        self,
        spec: ServerSpec,
        say: Say,
        open_browser: OpenBrowser | None,
        pasted: Pasted | None,
        wanted: str,
        show: Show | None = None,
    ) -> None:
        self.spec = spec
        self.say = say
        self.device: DeviceAnswer | None = None
        self.device_endpoint = ""
        self._open_browser = open_browser
        self._show = show
        self._pasted = pasted
        self._scopes = union_scopes(wanted or None, " ".join(spec.oauth.scopes) or None)
        self._receiver: Receiver | None = None
        self._challenged = True

    async def run(self) -> KeptLogin:
        """Log in, and return the result. Raises LmagentError."""
        try:
            with anyio.fail_after(SECONDS):
                if self.spec.oauth.grant == "client_credentials":
                    return await self._driven(_own_client(self.spec))
                async with listening(self.spec.oauth.port) as self._receiver:
                    return await self._driven(_User(self, self._receiver))
        except TimeoutError:
            raise self._failed(f"there was no login within {SECONDS / 60:.0f} minutes") from None
        except ValidationError:
            raise self._failed("its authorization server sent an answer that OAuth does not allow") from None
        except OAuthFlowError as error:
            raise self._failed(str(error)) from None
        except httpx2.HTTPError as error:
            raise self._failed(f"no connection: {error or type(error).__name__}") from None
        except OSError as error:
            raise self._failed(f"the port for the redirect cannot be used: {error.strerror}") from None

    def _failed(self, why: str) -> LoginNeeded:
        return LoginNeeded(self.spec, f"the login to {self.spec.name} failed: {one_line(why, 300)}")

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _driven(self, provider: _User | ClientCredentialsOAuthProvider) -> KeptLogin:
        """Send the requests of the SDK's client until it has a token."""
        storage = cast("Kept", provider.context.storage)
        headers = {**self.spec.headers, "Accept": "application/json, text/event-stream"}
        request = httpx2.Request("POST", self.spec.url, json=_BEGIN, headers=headers)
        async with httpx2.AsyncClient(timeout=REQUEST_SECONDS) as http:
            self._http = http
            steps = provider.async_auth_flow(request)
            await anext(steps)
            response = await self._challenge(request)
            try:
                while True:
                    outgoing = await steps.asend(response)
                    if storage.tokens is not None:
                        break
                    self._check_known(provider.context.oauth_metadata)
                    response = await self._answer(outgoing)
            finally:
                await steps.aclose()
        return _result(self.spec, provider, storage.tokens)

    async def _challenge(self, request: httpx2.Request) -> httpx2.Response:
        """Ask the server without a login, and return its refusal, with the scopes that we want."""
        response = await self._http.send(request, stream=True)
        await response.aclose()
        self._challenged = response.status_code in (401, 403)
        fields = {"resource_metadata": extract_field_from_www_auth(response, "resource_metadata")}
        fields["scope"] = union_scopes(self._scopes, extract_field_from_www_auth(response, "scope"))
        written = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
        return httpx2.Response(401, headers={"WWW-Authenticate": f"Bearer {written}"}, request=request)

    def _check_known(self, metadata: OAuthMetadata | None) -> None:
        issuer = self.spec.oauth.issuer
        if metadata is not None and issuer and not issuers_match(str(metadata.issuer), issuer):
            raise OAuthFlowError(f"its authorization server is {metadata.issuer}, and its entry names {issuer}")

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST" and not self._challenged and not self._metadata_seen:
            raise OAuthFlowError("it answers without a login, and offers none")
        response = await self.fetch(request)
        if "/.well-known/" in request.url.path and response.status_code == 200:
            self._read_metadata(response)
        while self.device is not None and _is_pending(response, self.device):
            await anyio.sleep(self.device.interval)
            response = await self.fetch(request)
        return response

    _metadata_seen = False

    def _read_metadata(self, response: httpx2.Response) -> None:
        """Note where a device can be authorized, which the SDK does not read."""
        self._metadata_seen = True
        if self._open_browser is not None:
            return
        try:
            found: Any = response.json()
        except ValueError:
            return
        endpoint: Any = (
            cast("dict[str, Any]", found).get("device_authorization_endpoint") if isinstance(found, dict) else ""
        )
        if isinstance(endpoint, str) and endpoint.startswith(("http://", "https://")):
            self.device_endpoint = endpoint

    async def fetch(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its answer, which is bounded."""
        self._check_encrypted(str(request.url))
        response = await self._http.send(request, stream=True)
        content = b""
        try:
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > LONGEST:
                    raise OAuthFlowError("an answer is too long")
        finally:
            await response.aclose()
        gone = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in gone]
        read = httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)
        read.next_request = response.next_request
        return read

    def _check_encrypted(self, address: str) -> None:
        if self.spec.url.startswith("https://") and not address.startswith("https://"):
            raise OAuthFlowError(f"{address.partition('?')[0]} is not encrypted, though the server's address is")

    # --- the user ---------------------------------------------------------------------------------------------------

    async def ask(self, address: str) -> None:
        """Ask the user to log in at an address."""
        assert self._receiver is not None
        self._check_encrypted(address)
        self._receiver.expect(parse_qs(urlsplit(address).query)["state"][0])
        self.say(f"Log in to {self.spec.name} in your browser, at this address:")
        self.say(one_line(address, 8000))
        if self._pasted is not None:
            self.say("If the browser runs on another machine: paste the address here that it shows at the end.")
        if self._show is not None:
            self._show(LoginStep(one_line(address, 8000)))
        if self._open_browser is not None:
            await anyio.to_thread.run_sync(self._open_browser, address)

    async def redirected(self) -> AuthorizationCodeResult:
        """Wait until the browser, or the user, brings the answer."""
        assert self._receiver is not None
        async with anyio.create_task_group() as group:
            group.start_soon(self._take_pasted, self._receiver)
            await self._receiver.redirect()
            group.cancel_scope.cancel()
        found = await self._receiver.redirect()
        _check_granted(found)
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.iss)

    async def _take_pasted(self, receiver: Receiver) -> None:
        while self._pasted is not None and (line := (await self._pasted()).strip()):
            try:
                if receiver.offer(parse_redirect(line)):
                    return
            except ValueError:  # no address at all
                pass
            self.say(f"That is not the end of this login. Paste the whole address; it begins with {receiver.address}?")

    def show_device(self, device: DeviceAnswer) -> None:
        """Ask the user to enter a code on a device that has a browser."""
        place = device.verification_uri
        if not place.startswith(("http://", "https://")):
            raise OAuthFlowError("the place to enter the code is no address")
        self.device = device
        device.interval = max(device.interval, 1.0)
        place, code = one_line(place, 2000), one_line(device.user_code, 80)
        self.say(f"Open {place} on any device, and enter the code {code}")
        if self._show is not None:
            self._show(LoginStep(place, code))


class _User(OAuthClientProvider):
    """The SDK's client, for a login of the user."""

    def __init__(self, flow: Flow, receiver: Receiver) -> None:
        own = flow.spec.oauth
        metadata = OAuthClientMetadata(
            redirect_uris=[AnyUrl(receiver.address)], client_name="lmagent", token_endpoint_auth_method=None
        )
        document = own.client_id if is_valid_client_metadata_url(own.client_id) else None
        known = None
        if own.client_id and document is None:
            known = OAuthClientInformationFull(
                client_id=own.client_id, client_secret=own.client_secret or None, redirect_uris=metadata.redirect_uris
            )
        super().__init__(flow.spec.url, metadata, Kept(known), flow.ask, flow.redirected, document)
        self._flow = flow

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self._flow.spec.oauth.issuer
        return next((each for each in advertised if issuer and issuers_match(each, issuer)), advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        _choose_method(self)
        if not self._flow.device_endpoint:
            return await super()._perform_authorization()
        client = self.context.client_info
        assert client is not None
        form = {"client_id": client.client_id, "scope": self.context.client_metadata.scope or ""}
        device = await self._device({name: value for name, value in form.items() if value})
        self._flow.show_device(device)
        form = {"grant_type": DEVICE_GRANT, "device_code": device.device_code, "client_id": client.client_id}
        await anyio.sleep(device.interval)
        return self._signed(self._get_token_endpoint(), form)

    async def _device(self, form: dict[str, str]) -> DeviceAnswer:
        response = await self._flow.fetch(self._signed(self._flow.device_endpoint, form))
        if response.status_code != 200:
            raise OAuthFlowError(f"no code for a device ({response.status_code}): {response.text}")
        try:
            return decode_json(response.content, DeviceAnswer)
        except (ValueError, LmagentError):
            raise OAuthFlowError("RFC 8628 does not allow its answer for a device") from None

    def _signed(self, address: str, form: dict[str, str]) -> httpx2.Request:
        if self.context.should_include_resource_param(self.context.protocol_version):
            form = {**form, "resource": self.context.get_resource_url()}
        form, headers = self.context.prepare_token_auth(form, {})
        return httpx2.Request("POST", address, data=form, headers=headers)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        steps = super().async_auth_flow(request)
        outgoing = await anext(steps)
        try:
            while True:
                response = yield outgoing
                if self._flow.device_endpoint:  # known before the registration, which names it
                    self.context.client_metadata.grant_types = [DEVICE_GRANT, "refresh_token"]
                outgoing = await steps.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await steps.aclose()


class _Own(ClientCredentialsOAuthProvider):
    """The SDK's client, for a login as the client itself."""

    async def _perform_authorization(self) -> httpx2.Request:
        _choose_method(self)
        return await super()._perform_authorization()


def _own_client(spec: ServerSpec) -> _Own:
    own = spec.oauth
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the entry may leave the issuer out
        return _Own(spec.url, Kept(None), own.client_id, own.client_secret, issuer=own.issuer or None)


def _choose_method(provider: OAuthClientProvider) -> None:
    """Choose how a client that was registered beforehand shows its secret: as the server offers."""
    client, metadata = provider.context.client_info, provider.context.oauth_metadata
    if client is None or client.issuer is not None or client.client_secret is None:
        return
    offered = (metadata and metadata.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
    is_post = "client_secret_post" in offered and "client_secret_basic" not in offered
    client.token_endpoint_auth_method = "client_secret_post" if is_post else "client_secret_basic"


def _check_granted(redirect: Redirect) -> None:
    if redirect.error == "access_denied":
        raise OAuthFlowError("it was refused in the browser")
    if redirect.error:
        raise OAuthFlowError(f"the authorization server answers {redirect.error}: {redirect.detail or 'no reason'}")


def _is_pending(response: httpx2.Response, device: DeviceAnswer) -> bool:
    """Return whether the user has not confirmed the device yet."""
    if response.status_code != 400:
        return False
    try:
        error: Any = response.json().get("error")
    except (ValueError, AttributeError):
        return False
    if error in ("access_denied", "expired_token"):
        why = "it was refused" if error == "access_denied" else "the code was not entered in time"
        raise OAuthFlowError(why)
    device.interval += 5.0 * (error == "slow_down")
    return error in ("authorization_pending", "slow_down")


def _result(spec: ServerSpec, provider: _User | ClientCredentialsOAuthProvider, token: OAuthToken) -> KeptLogin:
    context = provider.context
    assert context.client_info is not None
    has_resource = context.should_include_resource_param(context.protocol_version)
    return KeptLogin(
        url=spec.url,
        access_token=token.access_token,
        refresh_token=token.refresh_token or "",
        expires=time.time() + token.expires_in if token.expires_in else 0.0,
        scope=token.scope or "",
        client=context.client_info.model_dump(mode="json", exclude_none=True),
        token_endpoint=provider._get_token_endpoint(),  # pyright: ignore[reportPrivateUsage]
        resource=context.get_resource_url() if has_resource else "",
    )

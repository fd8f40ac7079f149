"""Flow: one login, by the SDK's client for OAuth, in a browser or with a code on another device (RFC 8628).

The SDK's client is a generator of requests. `Flow` sends them itself: it sees the metadata, bounds what servers send,
and repeats the request for a token until the user has confirmed a device.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs

import anyio
import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    is_valid_client_metadata_url,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from msgspec import Struct
from pydantic import AnyUrl

from lmagent.config.files import read_small
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.engine.redact import Redactor
from lmagent.mcp.login.kept import KeptLogin, LoginNeeded
from lmagent.mcp.login.loopback import Receiver, Redirect, listening, parse_redirect
from lmagent.mcp.login.requests import answer_of, leads_inside, secrets_of
from lmagent.mcp.oauth import LoginStep, OpenBrowser, Pasted, Say, Show
from lmagent.mcp.spec import OAuthClient, ServerSpec
from lmagent.tools.sanitize import one_line

SECONDS = 300.0
"""How long a login may take."""

REQUEST_SECONDS = 20.0
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

_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

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


class _Metadata(Struct):
    device_authorization_endpoint: str = ""


class _Refusal(Struct):
    error: str = ""


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
        self._headers = {**spec.headers, "Accept": "application/json, text/event-stream"}
        self._secrets = list(spec.secrets)
        self._redactor = Redactor(self._secrets)

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
        except OAuthFlowError as error:
            raise self._failed(str(error).partition("\n")[0]) from None  # the rest quotes parts of answers
        except (ValueError, OverflowError, RecursionError):
            raise self._failed("its authorization server sent an answer that OAuth does not allow") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed(f"no connection: {error or type(error).__name__}") from None
        except OSError as error:
            port = f"port {self.spec.oauth.port}" if self.spec.oauth.port else "a port"
            raise self._failed(f"{port} for the redirect cannot be used: {error.strerror}") from None

    def _failed(self, why: str) -> LoginNeeded:
        shown = one_line(self._redactor.text(why), 300)
        return LoginNeeded(self.spec, f"the login to {self.spec.name} failed: {shown}")

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _driven(self, provider: OAuthClientProvider) -> KeptLogin:
        """Send the requests of the SDK's client until it has a token."""
        storage = cast("Kept", provider.context.storage)
        request = httpx2.Request("POST", self.spec.url)
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
                    response = await self._answer(outgoing)
            finally:
                await steps.aclose()
        return _result(self.spec, provider, storage.tokens)

    async def _challenge(self, request: httpx2.Request) -> httpx2.Response:
        """Ask the server without a login, and return its refusal, with the scopes that we want."""
        for message in (_BEGIN, _LIST):  # some servers let a client begin, and refuse what follows
            asked = httpx2.Request("POST", self.spec.url, json=message, headers=self._headers)
            response = await self._http.send(asked, stream=True)
            await response.aclose()
            self._challenged = response.status_code in (401, 403)
            if self._challenged:
                break
        fields = {"resource_metadata": extract_field_from_www_auth(response, "resource_metadata")}
        fields["scope"] = union_scopes(self._scopes, extract_field_from_www_auth(response, "scope"))
        written = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
        return httpx2.Response(401, headers={"WWW-Authenticate": f"Bearer {written}"}, request=request)

    def check_issuer(self, metadata: OAuthMetadata | None) -> None:
        """Refuse another authorization server than the entry names, before it receives a code or a secret."""
        issuer = self.spec.oauth.issuer
        if issuer and (metadata is None or not issuers_match(str(metadata.issuer), issuer)):
            found = f"is {metadata.issuer}" if metadata is not None else "has no metadata"
            raise OAuthFlowError(f"its authorization server {found}, and its entry names {issuer}")

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST" and not self._challenged and not self._metadata_seen:
            raise OAuthFlowError("it answers without a login, and offers none")
        response = await self.fetch(request)
        if request.method == "GET" and response.status_code == 200:
            self._read_metadata(response)
        while self.device is not None and is_pending(response, self.device):
            await anyio.sleep(self.device.interval)
            response = await self.fetch(request)
        return response

    _metadata_seen = False

    def _read_metadata(self, response: httpx2.Response) -> None:
        """Note where a device can be authorized, which the SDK does not read.

        The last document before the login is the authorization server's: those of others do not count.
        """
        self._metadata_seen = True
        try:
            self.device_endpoint = decode_json(response.content, _Metadata).device_authorization_endpoint
        except (ValueError, RecursionError):
            self.device_endpoint = ""
        if self._open_browser is not None or not self.device_endpoint.startswith(("http://", "https://")):
            self.device_endpoint = ""

    async def fetch(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its answer. Raises OAuthFlowError."""
        await self.check_address(str(request.url))
        self._secrets += (request.headers.get("Authorization", "").rpartition(" ")[2], *secrets_of(request.content))
        response = await answer_of(self._http, request)
        self._secrets += secrets_of(response.content)
        return response

    async def check_address(self, address: str) -> None:
        """Refuse an address that the server must not lead to."""
        place = address.partition("?")[0]
        if self.spec.url.startswith("https://") and not address.startswith("https://"):
            raise OAuthFlowError(f"{place} is not encrypted, though the server's address is")
        if await leads_inside(self.spec.url, address, self.spec.oauth.issuer):
            raise OAuthFlowError(
                f"the server is on the internet, and leads to {place}, which is not; "
                'if you trust that place, name it as "issuer" in "oauth" of its entry'
            )

    # --- the user ---------------------------------------------------------------------------------------------------

    async def ask(self, address: str) -> None:
        """Ask the user to log in at an address."""
        assert self._receiver is not None
        await self.check_address(address)
        place, _, query = address.partition("?")
        address = f"{place}?{query.replace('?', '&')}"  # the SDK adds its parameters to those of an endpoint after a ?
        self._receiver.expect(parse_qs(query)["state"][-1])
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

    async def show_device(self, device: DeviceAnswer) -> None:
        """Ask the user to enter a code on a device that has a browser."""
        place = device.verification_uri
        if not place.startswith(("http://", "https://")):
            raise OAuthFlowError("the place to enter the code is no address")
        await self.check_address(place)
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
        self._flow.check_issuer(self.context.oauth_metadata)
        _choose_method(self)
        if not self._flow.device_endpoint or self.context.oauth_metadata is None:
            return await super()._perform_authorization()
        client = self.context.client_info
        assert client is not None
        form = {"client_id": client.client_id, "scope": self.context.client_metadata.scope or ""}
        device = await self._device({name: value for name, value in form.items() if value})
        await self._flow.show_device(device)
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
                # Known before the registration, which names it.
                grant = DEVICE_GRANT if self._flow.device_endpoint else "authorization_code"
                self.context.client_metadata.grant_types = [grant, "refresh_token"]
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


def _own_client(spec: ServerSpec) -> OAuthClientProvider:
    own, issuer = spec.oauth, spec.oauth.issuer or None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the entry may leave the issuer out
        if own.key_file:
            signed = _signed_by(own)
            return PrivateKeyJWTOAuthProvider(spec.url, Kept(None), own.client_id, signed, issuer=issuer)
        return _Own(spec.url, Kept(None), own.client_id, own.client_secret, issuer=issuer)


def _signed_by(own: OAuthClient) -> Callable[[str], Awaitable[str]]:
    """Return the function that signs as a client (RFC 7523). Raises OAuthFlowError: its key cannot be used."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        pem = read_small(Path(own.key_file))
        key = load_pem_private_key(pem, None) if pem else None
    except (ValueError, TypeError, UnsupportedAlgorithm, ConfigError) as error:
        raise OAuthFlowError(f"the key {own.key_file} cannot be used: {error}") from None
    algorithm = ""
    match key:
        case rsa.RSAPrivateKey():
            algorithm = "RS256"
        case ec.EllipticCurvePrivateKey(curve=curve):
            algorithm = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}.get(curve.name, "")
        case ed25519.Ed25519PrivateKey():
            algorithm = "EdDSA"
        case _:
            pass
    if pem is None or not algorithm:
        why = "it does not exist" if pem is None else "it is no RSA, EC or Ed25519 key"
        raise OAuthFlowError(f"the key {own.key_file} cannot be used: {why}")
    signing = SignedJWTParameters(
        issuer=own.client_id, subject=own.client_id, signing_key=pem.decode(), signing_algorithm=algorithm
    )
    return signing.create_assertion_provider()


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


def is_pending(response: httpx2.Response, device: DeviceAnswer) -> bool:
    """Return whether the user has not confirmed the device yet."""
    if response.status_code != 400:
        return False
    try:
        error = decode_json(response.content, _Refusal).error
    except (ValueError, RecursionError):
        return False
    if error in ("access_denied", "expired_token"):
        why = "it was refused" if error == "access_denied" else "the code was not entered in time"
        raise OAuthFlowError(why)
    device.interval += 5.0 * (error == "slow_down")
    return error in ("authorization_pending", "slow_down")


def ends_at(token: OAuthToken) -> float:
    """Return the time at which a token ends; 0 if the server does not say."""
    return time.time() + token.expires_in if token.expires_in else 0.0


def _result(spec: ServerSpec, provider: OAuthClientProvider, token: OAuthToken) -> KeptLogin:
    context = provider.context
    assert context.client_info is not None
    metadata = context.oauth_metadata
    has_resource = context.should_include_resource_param(context.protocol_version)
    return KeptLogin(
        url=spec.url,
        access_token=token.access_token,
        refresh_token=token.refresh_token or "",
        expires=ends_at(token),
        scope=token.scope or "",
        client=context.client_info.model_dump(mode="json", exclude_none=True),
        token_endpoint=provider._get_token_endpoint(),  # pyright: ignore[reportPrivateUsage]
        revocation_endpoint=str((metadata and metadata.revocation_endpoint) or ""),
        resource=context.get_resource_url() if has_resource else "",
    )

"""Keep the page to whoever has the address that `ebb ui` printed, in a browser on this machine.

A server on the loopback can be reached by every user of the machine, and by every page that the user's browser shows:
- the address has a random token, which the browser changes into a cookie (HttpOnly, SameSite=Strict), so that it does not stay
  in the address bar, in bookmarks or in a Referer;
- cookies know no ports: that of 127.0.0.1:8000 is sent to 127.0.0.1:9000, which may be another user's. So everything lies below
  a random path, to which the cookie is bound, and which nobody else can let the browser ask for;
- Host must be a name of the loopback, or a site could point its own name at 127.0.0.1 and read along (DNS rebinding). Any port
  will do: behind `ssh -L` it is another one than ours;
- Origin and Sec-Fetch-Site must be the page's own where a browser sends them;
- only GET is answered: nothing can be changed, whoever asks.
"""

import hmac
import secrets
from html import escape
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

COOKIE = "ebb_ui"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
HEADERS = {
    # Attributes with a style place the ticks of plots; their values are numbers of ours. Texts become HTML in one place of ui.js.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types ebb",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STRANGER = "This page belongs to whoever ran `ebb ui`: open the address that it printed."


class Guard:
    """The secrets of one run, and the middleware that asks for them."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.base = f"/{secrets.token_urlsafe(12)}/"

    @property
    def opening(self) -> str:
        """The path that lets a browser in."""
        return f"{self.base}?token={self.token}"

    def middleware(self) -> Middleware:
        """Ask every request."""

        @web.middleware
        async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
            if complaint := _complaint_of_site(request):
                return web.Response(status=403, text=f"{complaint}\n")
            if request.method != "GET":
                return web.Response(status=405, text="This page only reads: use the verbs of `ebb`.\n", headers={"Allow": "GET"})
            if request.path == self.base and self._is_token(request.query.get("token")):
                return self._let_in()
            if complaint := self._complaint(request):
                return web.Response(status=403, text=f"{complaint}\n")
            return await handler(request)

        return admit

    def _complaint(self, request: web.Request) -> str:
        if not request.path.startswith(self.base) or not self._is_token(request.cookies.get(COOKIE)):
            return STRANGER
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "Another site asked for this page."
        return ""

    def _is_token(self, given: str | None) -> bool:
        return hmac.compare_digest((given or "").encode(errors="replace"), self.token.encode())

    def _let_in(self) -> web.Response:
        """The cookie, on a page that goes on by itself: after a mere redirect from another site a strict one is not sent."""
        target = escape(self.base)
        answer = web.Response(
            content_type="text/html",
            text=f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Ebb</title>'
            f'<link rel="icon" href="{target}static/icon.svg">'
            f'<meta http-equiv="refresh" content="0;url={target}"></head><body><a href="{target}">Go on</a></body></html>\n',
        )
        answer.set_cookie(COOKIE, self.token, path=self.base, httponly=True, samesite="Strict")
        return answer


async def add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    """Every answer forbids the browser what the page does not need."""
    answer.headers.update(HEADERS)


def _complaint_of_site(request: web.Request) -> str:
    host = request.headers.get("Host", "")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in LOOPBACK:
        return f"Host {host!r} is none of this machine's: use the address that `ebb ui` printed."
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return f"Origin {origin!r} is another site."
    return ""

package server

import (
	"log/slog"
	"net/http"
	"strings"
)

// rejectBrowsers returns a handler that answers 403 to the requests that isUnsafeBrowserRequest selects. It closes their
// connections, because it does not authenticate the clients.
func rejectBrowsers(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isUnsafeBrowserRequest(r) {
			log.Debug("rejected a request that a page in a browser may have caused", "client", r.RemoteAddr, "method", r.Method,
				"path", r.URL.Path, "origin", r.Header.Get("Origin"), "site", r.Header.Get("Sec-Fetch-Site"))
			w.Header().Set("Connection", "close")
			http.Error(w, "a page in a browser may only read "+PathPage, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isUnsafeBrowserRequest reports whether a page in a browser may have caused the request. A browser that has a client
// certificate for this port sends it with every request, also with a request or a WebSocket of another site's page.
// So the certificate does not show that the user wants the request.
//
// Safe requests of a browser are requests for the status page, and requests of addresses that the user has entered. The path of
// the status page itself may be the target of another site's link. Files and output of pods have the same origin as
// the status page, so the origin of this port is not a reason to allow a request.
//
// A request with X-Forwarded-For comes from a proxy with credentials of its own, such as an API server. The API server
// also forwards the headers of its client, which may be a dashboard's terminal in a browser. A request with a bearer token
// comes from a client that knows the token, such as an old WebSocket library that sends an Origin. A page of another site
// cannot set these two headers, because a browser first requests a permission for them by OPTIONS.
func isUnsafeBrowserRequest(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if site == "" && origin == "" || len(r.Header.Values("X-Forwarded-For")) > 0 || strings.EqualFold(scheme, "Bearer") {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != "" {
		return true
	}
	switch site {
	case "none":
		return false
	case "same-origin":
		return !strings.HasPrefix(r.URL.Path, PathPage)
	}
	return r.URL.Path != PathPage || origin != ""
}

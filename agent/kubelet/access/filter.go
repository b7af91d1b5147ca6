package access

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// User and group names of Kubernetes.
const (
	anonymousUser      = "system:anonymous"
	unauthenticated    = "system:unauthenticated"
	authenticatedGroup = "system:authenticated"
)

// Config configures a Filter.
type Config struct {
	NodeName     string
	ClientCAFile string             // CAs of client certificates; if it is empty, client certificates are ignored
	Tokens       TokenAuthenticator // if it is nil, tokens are ignored
	Anonymous    bool               // requests without credentials are from the user system:anonymous
	AlwaysAllow  bool               // every authenticated user has all permissions
	Authorizer   Authorizer         // used if AlwaysAllow is false; if it is nil, all requests are forbidden
	// Admitted is called with the context of each admitted request that is not anonymous. It may be nil.
	Admitted func(context.Context)
	Now      func() time.Time // if it is nil, time.Now is used
	Log      *slog.Logger
}

// A Filter authenticates and authorizes requests.
type Filter struct {
	Config
	clientCAs *clientCAs
}

// New returns a Filter. It does not read the CA file yet.
func New(c Config) *Filter {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Filter{Config: c, clientCAs: newClientCAs(c.ClientCAFile, c.Log)}
}

// WhyNobody returns why every request would be rejected. It is empty if requests can be admitted.
func (g *Filter) WhyNobody() string {
	switch {
	case g.ClientCAFile == "" && g.Tokens == nil && !g.Anonymous:
		return "authentication.x509.clientCAFile is not set, no control plane can verify tokens, and anonymous access is disabled"
	case !g.AlwaysAllow && g.Authorizer == nil:
		return "authorization.mode is Webhook, but there is no control plane"
	}
	return ""
}

// Wrap returns a handler that calls next for an admitted request, and answers 401 or 403 otherwise. After a rejected
// request it closes the connection of an unauthenticated client, so that such clients cannot keep idle connections.
func (g *Filter) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.authenticate(r)
		if err != nil || user == nil {
			g.Log.Debug("unauthorized", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
			w.Header().Set("Connection", "close")
			writeAnswer(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		if code, text := g.authorize(r, user); code != http.StatusOK {
			if user.Username == anonymousUser {
				w.Header().Set("Connection", "close")
			}
			writeAnswer(w, code, text)
			return
		}
		if g.Admitted != nil && user.Username != anonymousUser {
			g.Admitted(r.Context())
		}
		r.Header.Del("Authorization") // later handlers must not see it
		next.ServeHTTP(w, r)
	})
}

func writeAnswer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	io.WriteString(w, text)
}

var errUnknownToken = errors.New("invalid bearer token")

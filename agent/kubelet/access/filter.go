package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"
)

// A TokenAuthenticator returns the user of a token.
type TokenAuthenticator interface {
	// AuthenticateToken returns nil for an invalid token. It returns an error if the token could not be verified.
	AuthenticateToken(ctx context.Context, token string) (*authn.UserInfo, error)
}

// An Authorizer decides whether a user has a permission.
type Authorizer interface {
	// Authorize checks whether the user has the permission in spec.ResourceAttributes. The request is allowed
	// only if the field Allowed of the result is true. An error means that there is no decision.
	Authorize(ctx context.Context, spec authz.SubjectAccessReviewSpec) (authz.SubjectAccessReviewStatus, error)
}

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

// authenticate returns the user of a request. It returns nil if the request has no credentials and anonymous
// requests are not allowed. It returns an error for invalid credentials, even if anonymous requests are
// allowed. It does not verify the token if the request has a valid client certificate.
func (g *Filter) authenticate(r *http.Request) (*authn.UserInfo, error) {
	user, certErr := g.clientCAs.verifyUser(r.TLS, g.Now())
	if user != nil {
		return user, nil
	}
	user, tokenErr := g.tokenUser(r)
	if user != nil {
		return user, nil
	}
	if err := errors.Join(certErr, tokenErr); err != nil {
		return nil, err
	}
	if g.Anonymous {
		return &authn.UserInfo{Username: anonymousUser, Groups: []string{unauthenticated}}, nil
	}
	return nil, nil
}

func (g *Filter) tokenUser(r *http.Request) (*authn.UserInfo, error) {
	kind, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token, _, _ = strings.Cut(token, " "); g.Tokens == nil || !strings.EqualFold(kind, "bearer") || token == "" {
		return nil, nil
	}
	user, err := g.Tokens.AuthenticateToken(r.Context(), token)
	if err == nil && user == nil {
		err = errUnknownToken
	}
	if err != nil {
		return nil, fmt.Errorf("authenticate token: %w", err)
	}
	return addAuthenticatedGroup(user), nil
}

// authorize decides whether the user may make the request. It returns the status code of the response, which is 200 if the
// request is allowed, and the text of the response.
func (g *Filter) authorize(r *http.Request, user *authn.UserInfo) (code int, text string) {
	if g.AlwaysAllow {
		return http.StatusOK, ""
	}
	verb, subresources := requestAttributes(r)
	for _, sub := range subresources {
		allowed, err := g.isAllowed(r.Context(), user, verb, sub)
		if err != nil {
			g.Log.Warn("cannot authorize a client", "user", user.Username, "verb", verb, "subresource", sub, "error", err)
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
				user.Username, verb, sub)
		}
		if allowed {
			return http.StatusOK, ""
		}
	}
	g.Log.Debug("forbidden", "user", user.Username, "verb", verb, "subresources", subresources)
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
		user.Username, verb, subresources)
}

func (g *Filter) isAllowed(ctx context.Context, user *authn.UserInfo, verb, subresource string) (bool, error) {
	if g.Authorizer == nil {
		return false, nil
	}
	extra := make(map[string]authz.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authz.ExtraValue(v)
	}
	status, err := g.Authorizer.Authorize(ctx, authz.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authz.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: g.NodeName,
		},
	})
	return status.Allowed, err
}

package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authn "k8s.io/api/authentication/v1"
)

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

// A TokenAuthenticator returns the user of a token.
type TokenAuthenticator interface {
	// AuthenticateToken returns nil for an invalid token. It returns an error if the token could not be verified.
	AuthenticateToken(ctx context.Context, token string) (*authn.UserInfo, error)
}

package review

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/islet-edge/islet/edge/kube"
)

// maxToken is the maximum length of a token, in bytes. Tokens of service accounts have about 1 KiB. Among the tokens of identity providers,
// tokens with 200 groups are the longest, with about 12 KiB. Anybody can send a token, and each new token is sent to the API server.
const maxToken = 16 << 10

// Tokens authenticates bearer tokens by TokenReview. See
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/.
type Tokens struct {
	client  *kube.Client
	ttl     time.Duration
	answers *answerCache
}

// NewTokens returns a Tokens. It caches positive and negative answers for ttl
// (authentication.webhook.cacheTTL).
func NewTokens(c *kube.Client, ttl time.Duration) *Tokens {
	isValid := func(user any) bool { return user != (*authenticationv1.UserInfo)(nil) }
	return &Tokens{client: c, ttl: ttl, answers: newAnswers(isValid, true)}
}

// AuthenticateToken returns the user of a token, or nil if the token is not valid. Callers must not modify
// the user. An error means that there is no answer of the API server: the request has failed, or too many reviews wait.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if token == "" || len(token) > maxToken {
		return nil, nil
	}
	answer, err := t.answers.get(ctx, token, func(ctx context.Context) (any, time.Duration, error) {
		var none *authenticationv1.UserInfo
		r, err := kube.PostReview(ctx, t.client, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
		switch {
		case err != nil:
			return none, 0, fmt.Errorf("review a token: %w", err)
		case r.Status.Authenticated:
			return &r.Status.User, t.ttl, nil
		case r.Status.Error != "": // the error may be temporary, so it is not cached for the TTL
			return none, rejectionTTL, fmt.Errorf("review a token: %w: %s", errRejected, r.Status.Error)
		}
		return none, t.ttl, nil
	})
	if err != nil {
		return nil, err
	}
	return answer.(*authenticationv1.UserInfo), nil
}

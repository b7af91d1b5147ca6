package review

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/islet-edge/islet/edge/kube"
)

// Access authorizes requests by SubjectAccessReview.
type Access struct {
	client          *kube.Client
	allowed, denied time.Duration
	answers         *answerCache
}

// NewAccess returns an Access. The configuration determines how long it caches positive answers (authorization.webhook.cacheAuthorizedTTL)
// and negative answers (cacheUnauthorizedTTL).
func NewAccess(c *kube.Client, allowed, denied time.Duration) *Access {
	isAllowed := func(status any) bool { return status.(*authorizationv1.SubjectAccessReviewStatus).Allowed }
	return &Access{client: c, allowed: allowed, denied: denied, answers: newAnswers(isAllowed, false)}
}

// Authorize reports whether the user may make the described request. The answer contains a reason. An error means that the API server did
// not answer.
func (a *Access) Authorize(
	ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	answer, err := a.answers.get(ctx, spec, func(ctx context.Context) (any, time.Duration, error) {
		r, err := kube.PostReview(ctx, a.client, &authorizationv1.SubjectAccessReview{Spec: spec})
		if err != nil {
			return &authorizationv1.SubjectAccessReviewStatus{}, 0, fmt.Errorf("review the access of %s: %w", spec.User, err)
		}
		if r.Status.Allowed {
			return &r.Status, a.allowed, nil
		}
		return &r.Status, a.denied, nil
	})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return *answer.(*authorizationv1.SubjectAccessReviewStatus), nil
}

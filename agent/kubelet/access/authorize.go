package access

import (
	"context"
	"fmt"
	"net/http"

	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"
)

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

// An Authorizer decides whether a user has a permission.
type Authorizer interface {
	// Authorize checks whether the user has the permission in spec.ResourceAttributes. The request is allowed
	// only if the field Allowed of the result is true. An error means that there is no decision.
	Authorize(ctx context.Context, spec authz.SubjectAccessReviewSpec) (authz.SubjectAccessReviewStatus, error)
}

package k3s

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The groups of users that paths are open to, and the prefix of a node's user. k3s pkg/server/handlers/router.go.
const (
	agentGroup  = "k3s:agent"
	serverGroup = "k3s:server"
	nodesGroup  = "system:nodes"
	bootstrap   = "system:bootstrappers"
	masters     = "system:masters"
	nodePrefix  = "system:node:"
)

// A user has sent a request.
type user struct {
	name   string
	groups []string
}

func (u user) in(group string) bool { return slices.Contains(u.groups, group) }

type userKey struct{}

func withUser(ctx context.Context, u user) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

func userOf(r *http.Request) user { u, _ := r.Context().Value(userKey{}).(user); return u }

// authenticate returns the user of the first valid credential: a password (Basic), a client certificate, a token (Bearer). It returns false
// without credentials, and an error if all credentials are invalid. k3s pkg/daemons/control/auth.go; pkg/authenticator/basicauth.
func (s *Server) authenticate(r *http.Request) (user, bool, error) {
	var invalid error
	if name, password, ok := r.BasicAuth(); ok {
		want, known := s.passwords[name]
		if known && subtle.ConstantTimeCompare([]byte(want.password), []byte(password)) == 1 {
			return user{name: name, groups: []string{want.group}}, true, nil
		}
		invalid = errors.New("invalid username/password combination")
	}
	if u, ok, err := s.certified(r); ok {
		return u, true, nil
	} else if err != nil {
		invalid = err
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		review, err := s.c.Client.AuthenticationV1().TokenReviews().Create(r.Context(),
			&authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err == nil && review.Status.Authenticated {
			return user{name: review.Status.User.Username, groups: review.Status.User.Groups}, true, nil
		}
		invalid = errors.Join(errors.New("invalid bearer token"), err)
	}
	return user{}, false, invalid
}

// certified returns the user of a client certificate. It returns an error if the client CA has not signed the certificate.
func (s *Server) certified(r *http.Request) (user, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return user{}, false, nil
	}
	more := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		more.AddCert(c)
	}
	cert := r.TLS.PeerCertificates[0]
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: s.pki.client.pool(), Intermediates: more, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return user{}, false, err
	}
	return user{name: cert.Subject.CommonName, groups: cert.Subject.Organization}, true, nil
}

// only passes the requests of users that are in one of the groups. k3s pkg/server/auth/auth.go, doAuth.
func (s *Server) only(next http.HandlerFunc, groups ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u, ok, err := s.authenticate(r)
		switch {
		case err != nil:
			refuse(w, r, http.StatusUnauthorized, errors.New("not authorized"))
		case !ok || !slices.ContainsFunc(groups, u.in):
			refuse(w, r, http.StatusForbidden, errors.New("forbidden"))
		default:
			next(w, r.WithContext(withUser(r.Context(), u)))
		}
	}
}

// refuse writes an error as the API server does, as a Status in JSON. k3s pkg/util/apierrors.go, SendError.
func refuse(w http.ResponseWriter, r *http.Request, code int, err error) {
	failed := func(reason metav1.StatusReason) *apierrors.StatusError {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: err.Error()}}
	}
	var status *apierrors.StatusError
	switch code {
	case http.StatusBadRequest:
		status = apierrors.NewBadRequest(err.Error())
	case http.StatusUnauthorized:
		status = apierrors.NewUnauthorized(err.Error())
	case http.StatusForbidden:
		status = failed(metav1.StatusReasonForbidden)
	case http.StatusBadGateway:
		status = failed(metav1.StatusReasonInternalError)
	case http.StatusInternalServerError:
		status = apierrors.NewInternalError(err)
	case http.StatusServiceUnavailable:
		status = apierrors.NewServiceUnavailable(err.Error())
	default:
		status = apierrors.NewGenericServerResponse(code, r.Method, schema.GroupResource{}, r.URL.Path, err.Error(), 0, true)
	}
	status.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status.ErrStatus) // the client may be gone
}

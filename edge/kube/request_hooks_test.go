package kube_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
)

// TestGivenUp checks that AfterRequest is not called when the caller has cancelled its request. The cause of the cancellation does not
// matter.
func TestGivenUp(t *testing.T) {
	for _, cause := range []error{nil, errors.New("the pod was deleted"), context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			s := apitest.New(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			fault := func(_ http.ResponseWriter, r *http.Request) bool {
				cancel(cause)
				<-r.Context().Done()
				return true
			}
			s.Fault.Store(&fault)
			to := &rest.Config{Host: "http://127.0.0.1:1"}
			c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: s.Dial,
				AfterRequest: func(status int, err error) {
					t.Errorf("After received %d, %v", status, err)
				}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseConnections()
			if _, err := kube.Get[corev1.Pod](ctx, c, "ns", "a"); err == nil {
				t.Error("want an error")
			}
		})
	}
}

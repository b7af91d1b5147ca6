package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
)

// TestOutageCostsNothing checks that the node sends no request during an hour without a link. A signal to retry does not cause a request
// either. When the link is up, the lease is renewed immediately.
func TestOutageCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var tries atomic.Int64
		w, to := prepare(t), &rest.Config{Host: "http://127.0.0.1:1"}
		client, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: w.Server.Dial,
			BeforeRequest: func(context.Context) error {
				if down.Load() {
					tries.Add(1)
					return fmt.Errorf("%w: the cable is cut", kube.ErrNoLink)
				}
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseConnections()
		w.cfg = func(c *Config) { c.Client = client }
		w.start()
		defer w.end()
		time.Sleep(time.Minute)
		down.Store(true)
		w.CloseConnections()
		time.Sleep(time.Minute)
		w.retry <- struct{}{} // a signal while the link stays down
		time.Sleep(time.Hour)
		if n := tries.Load(); n > 6 {
			t.Errorf("%d tries while the link was down", n)
		}
		down.Store(false)
		w.retry <- struct{}{}
		time.Sleep(time.Second)
		if age := time.Since(w.Lease(v1.NamespaceNodeLease, "n").Spec.RenewTime.Time); age > time.Second {
			t.Error("not renewed immediately when the link is back", age)
		}
	})
}

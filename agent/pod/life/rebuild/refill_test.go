package rebuild

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/keys"
)

// A repaired is a database that was created again, and a runtime with a sandbox whose manifest cannot be decoded. The first calls of
// RewriteRows fail.
type repaired struct {
	Runtime
	Store
	signal   chan struct{}
	failures int
	calls    []string
}

func (r *repaired) ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	broken := &api.PodSandbox{Metadata: &api.PodSandboxMetadata{Uid: "a"}, Annotations: map[string]string{keys.Manifest: "{"},
		State: api.PodSandboxState_SANDBOX_NOTREADY}
	return &api.ListPodSandboxResponse{Items: []*api.PodSandbox{broken}}, nil
}

func (r *repaired) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{}, nil
}

func (r *repaired) Rewrite(context.Context) error                            { r.calls = append(r.calls, "pods"); return nil }
func (r *repaired) Adopt(context.Context, []desired.Recovered) error         { return nil }
func (r *repaired) WatchRepairs() <-chan struct{}                            { return r.signal }
func (r *repaired) MarkFilled(context.Context) error                         { r.calls = append(r.calls, "filled"); return nil }
func (r *repaired) AddLease(context.Context, netip.Addr, string) (err error) { return nil }

func (r *repaired) RewriteRows(context.Context) error {
	r.calls = append(r.calls, "rows")
	if r.failures--; r.failures >= 0 {
		return errors.New("disk full")
	}
	return nil
}

// TestRefillIsRetried checks the order in which a database that was created again is filled, and that the refill is retried after an error.
// The database is complete only after all rows are stored. A manifest that can never be decoded does not prevent this.
func TestRefillIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &repaired{signal: make(chan struct{}, 1), failures: 2}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- New(Config{Runtime: r, Desired: r, Store: r, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		}()
		time.Sleep(time.Hour) // nothing happens without a signal, in the bubble's time
		r.signal <- struct{}{}
		time.Sleep(lastRetry) // longer than the first two retries, in the bubble's time
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"pods", "rows", "pods", "rows", "pods", "rows", "filled"}; !slices.Equal(r.calls, want) {
			t.Errorf("calls %q, want %q", r.calls, want)
		}
	})
}

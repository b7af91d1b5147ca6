package cri

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCharge checks that a large request waits while the total size of all large requests would exceed maxInWork. A request that waits
// longer than receiveTime is rejected. A request of ordinary size does not wait.
func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		large := &api.VersionRequest{Version: strings.Repeat("x", maxInWork/8)} // its size counts twice: encoded and decoded
		var done []func()
		charge := func(ctx context.Context, r *api.VersionRequest) error {
			d, err := l.waitForMemory(ctx, r)
			if err == nil {
				done = append(done, d)
			}
			return err
		}
		for range 3 {
			if err := charge(ctx, large); err != nil {
				t.Fatal(err)
			}
		}
		waited := make(chan error)
		go func() { waited <- charge(ctx, large) }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("the fourth request did not wait: %v", err)
		default:
		}
		for range maxCalls {
			if d, err := l.waitForMemory(ctx, &api.VersionRequest{Version: strings.Repeat("x", ordinarySize/3)}); err != nil {
				t.Fatalf("an ordinary request: %v", err)
			} else {
				defer d()
			}
		}
		done[0]()
		if err := <-waited; err != nil {
			t.Errorf("after the first is done: %v", err)
		}
		late, err := l.admitCall(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := charge(l.TagRPC(late, nil), large); status.Code(err) != codes.ResourceExhausted || time.Since(began) != receiveTime {
			t.Errorf("a request that waited for %v: %v", time.Since(began), err)
		}
		if !l.receiving.TryAcquire(maxReceiving) {
			t.Error("a rejected request still counts towards maxReceiving")
		}
	})
}

// TestAdmit checks that a call is rejected while maxCalls calls are running. When one of them ends, another call is accepted.
func TestAdmit(t *testing.T) {
	l := newLimits()
	ctx, cancel := context.WithCancel(t.Context())
	for range maxCalls {
		if _, err := l.admitCall(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.admitCall(t.Context(), nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call beyond the limit: %v", err)
	}
	cancel()
	for {
		if _, err := l.admitCall(t.Context(), nil); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("the ended calls still count")
		}
	}
}

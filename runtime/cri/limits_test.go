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

// The total size of large requests is bounded: one too many waits for its turn, and is rejected
// after waiting for too long. Requests of ordinary size do not wait.
func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		large := &api.VersionRequest{Version: strings.Repeat("x", maxInWork/8)} // counted twice: as received, and decoded
		var done []func()
		charge := func(ctx context.Context, r *api.VersionRequest) error {
			d, err := l.charge(ctx, r)
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
			t.Fatalf("a fourth does not wait: %v", err)
		default:
		}
		for range maxCalls {
			if d, err := l.charge(ctx, &api.VersionRequest{Version: strings.Repeat("x", ordinary/3)}); err != nil {
				t.Fatalf("an ordinary one: %v", err)
			} else {
				defer d()
			}
		}
		done[0]()
		if err := <-waited; err != nil {
			t.Errorf("after one is done: %v", err)
		}
		late, err := l.admit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := charge(l.TagRPC(late, nil), large); status.Code(err) != codes.ResourceExhausted || time.Since(began) != receiveTime {
			t.Errorf("one that waited for %v: %v", time.Since(began), err)
		}
		if !l.receiving.TryAcquire(maxReceiving) {
			t.Error("it keeps its place")
		}
	})
}

// Calls beyond the limit are rejected at once, and each that ends makes room.
func TestAdmit(t *testing.T) {
	l := newLimits()
	ctx, cancel := context.WithCancel(t.Context())
	for range maxCalls {
		if _, err := l.admit(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.admit(t.Context(), nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	for {
		if _, err := l.admit(t.Context(), nil); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("no room")
		}
	}
}

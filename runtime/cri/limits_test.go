package cri

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What is in work is bounded by its bytes, and what is done makes room.
func TestCharge(t *testing.T) {
	l := newLimits()
	big := &api.VersionRequest{Version: strings.Repeat("x", maxRequest-100)}
	var done []func()
	for {
		d, err := l.charge(big)
		if err != nil {
			if status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			break
		}
		done = append(done, d)
	}
	if len(done) != maxInWork/maxMemory {
		t.Errorf("%d requests are in work", len(done))
	}
	if _, err := l.charge(&api.VersionRequest{}); err != nil {
		t.Errorf("a small one: %v", err)
	}
	done[0]()
	if _, err := l.charge(big); err != nil {
		t.Errorf("after one is done: %v", err)
	}
}

// More calls than may be are refused at once, and each that ends makes room.
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

package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
)

// TestRefused checks that each field error in the agent's response is printed on its own line, without control characters.
func TestRefused(t *testing.T) {
	err := Refusal(&http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(strings.NewReader("maxPods: -1\nport: \x1b[31m0\n"))})
	if err.Error() != "maxPods: -1\n  port: ?[31m0" {
		t.Errorf("%q", err)
	}
}

// TestSlowReader checks that a command does not time out if its output is read slowly, as by a pager.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := &command.Tool{Env: command.Env{ResponseTimeout: time.Second}}
		ctx, dog, cancel := newWatchdog(t.Context(), tl)
		defer cancel()
		r := responseBody{strings.NewReader("abc"), dog}
		for range 3 {
			r.Read(make([]byte, 1))
			select {
			case <-ctx.Done():
				t.Fatal("timed out although no read was waiting")
			case <-time.After(time.Minute):
			}
		}
		slow, _ := io.Pipe()
		defer slow.Close()
		began := time.Now()
		go responseBody{slow, dog}.Read(make([]byte, 1))
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errSilent) || time.Since(began) != time.Second {
			t.Errorf("timed out after %s: %v", time.Since(began), context.Cause(ctx))
		}
	})
}

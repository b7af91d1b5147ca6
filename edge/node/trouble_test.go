package node

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/edge/apitest"
)

// TestSilentServerIsNoBusyLoop checks that the node sends a limited number of renewals to a server that accepts them and never answers.
// The node logs two lines: a warning, and the end of the problem.
func TestSilentServerIsNoBusyLoop(t *testing.T) {
	var lines lines
	in(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&lines, nil)) }, func(w *world) {
		silent := func(rw http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/leases/") && apitest.NeverAnswer(rw, r)
		}
		time.Sleep(time.Minute)
		w.Fault.Store(&silent)
		before, infos := w.Requests("PATCH leases"), lines.count("level=INFO")
		time.Sleep(10 * time.Minute)
		if n := w.Requests("PATCH leases") - before; n < 30 || n > 70 {
			t.Errorf("%d renewals in ten minutes", n)
		}
		w.Fault.Store(nil)
		time.Sleep(20 * time.Second)
		if age := time.Since(w.Lease(v1.NamespaceNodeLease, "n").Spec.RenewTime.Time); age > 11*time.Second {
			t.Error("not renewed again", age)
		}
		if begun, ended := lines.count("level=WARN"), lines.count("level=INFO")-infos; begun != 1 || ended != 1 {
			t.Errorf("%d warnings, and %d lines about the end:\n%s", begun, ended, lines.text.String())
		}
	})
}

// TestRenewalsPassBy checks that a renewal does not wait for the response to the previous renewal. On a slow link, responses are queued
// behind other data, and the lease would expire although the link works.
func TestRenewalsPassBy(t *testing.T) {
	var lines lines
	in(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&lines, nil)) }, func(w *world) {
		time.Sleep(time.Minute)
		late := func(rw http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/leases/") && apitest.NeverAnswer(rw, r)
		}
		w.Fault.Store(&late)
		before := w.Requests("PATCH leases")
		for range 120 {
			w.Bookmark() // data that arrives meanwhile
			time.Sleep(time.Second)
		}
		if n := w.Requests("PATCH leases") - before; n < 10 || n > 14 {
			t.Errorf("%d renewals in two minutes", n)
		}
		if lines.count("level=WARN") > 0 {
			t.Error("a late answer counts as no answer")
		}
	})
}

func TestFailuresAreNoBusyLoop(t *testing.T) {
	for _, err := range []error{apierrors.NewInternalError(fmt.Errorf("broken")), apierrors.NewTooManyRequests("slow down", 3),
		apierrors.NewUnauthorized("who?"), apierrors.NewForbidden(v1.Resource("nodes"), "n", nil),
		apierrors.NewResourceExpired("always"), apierrors.NewConflict(v1.Resource("nodes"), "n", nil)} {
		t.Run(string(apierrors.ReasonForError(err)), func(t *testing.T) {
			in(t, nil, func(w *world) {
				f := func(rw http.ResponseWriter, r *http.Request) bool { w.WriteError(rw, r, err); return true }
				w.Fault.Store(&f)
				w.CloseConnections()
				time.Sleep(time.Minute)
				before := w.Total()
				time.Sleep(10 * time.Minute)
				if n := (w.Total() - before) / 10; n > 50 {
					t.Errorf("%d requests a minute", n)
				}
				w.Fault.Store(nil)
				beat := w.condition(v1.NodeReady).LastHeartbeatTime
				time.Sleep(6 * time.Minute)
				if !w.condition(v1.NodeReady).LastHeartbeatTime.After(beat.Time) {
					t.Error("has not recovered")
				}
			})
		})
	}
}

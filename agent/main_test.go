package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/config"
)

// An agent whose helpers hang ends all the same, and one that ends in time is
// waited for.
func TestBounded(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		takes time.Duration // after it was asked to end
		want  error
	}{"at once": {0, failed}, "soon": {time.Second, failed}, "never": {time.Hour, errAbandoned}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, end)
				began := time.Now()
				err := bounded(ctx, lastCalls, func() error {
					<-ctx.Done()
					time.Sleep(c.takes)
					return failed
				})
				defer time.Sleep(c.takes) // a bubble waits for all that it started
				if took := time.Since(began); err != c.want || took > time.Minute+lastCalls {
					t.Errorf("%v after %v, want %v", err, took, c.want)
				}
			})
		})
	}
}

// TestVersion: called as kubelet the version is the line that kubeadm parses, and no
// other; else islet's own comes first.
func TestVersion(t *testing.T) {
	program := os.Args[0]
	t.Cleanup(func() { os.Args[0] = program })
	for name, want := range map[string]string{"/usr/bin/kubelet": "Kubernetes " + config.KubernetesVersion + "\n", "islet": "islet 1.2.3\nKubernetes " + config.KubernetesVersion + "\n"} {
		os.Args[0] = name
		var out, errs strings.Builder
		if code := Main([]string{"--version"}, "1.2.3", &out, &errs); code != 0 || out.String() != want {
			t.Errorf("%s: code %d, %q %s", name, code, out.String(), errs.String())
		}
	}
}
